"""The dtypes in which a document store keeps token states. A new one is one file and one line here."""

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.store.dtypes.base import StateDtype, unpack
from pyterrier_cascade.store.dtypes.fp16 import Fp16
from pyterrier_cascade.store.dtypes.int8 import Int8

DTYPES: dict[str, StateDtype] = {one.name: one for one in (Fp16(), Int8())}
"""Every dtype by the name that users give."""


def dtype_of(name: str) -> StateDtype:
    """Returns the dtype of this name; raises a ValueError for an unknown one."""
    check_choices(dtype=(name, DTYPES))
    return DTYPES[name]


__all__ = ["DTYPES", "StateDtype", "dtype_of", "unpack"]
