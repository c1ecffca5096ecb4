"""A GPU for tests on machines without one: the device ``sim``, whose tensors hold values of the CPU.

It computes as the CPU does, so that scores can be compared. It refuses what a GPU refuses: operands on two devices, and
``.numpy()``. It counts what would be launched on a GPU, what would make the host wait, and what would be uploaded, each
by the line of the package that asks for it. Its registration holds for the whole process and cannot be undone.
"""

import collections
import sys

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "sim"
launches, syncs, uploads = (collections.Counter() for _ in range(3))
watch = None
"""A function that is called with each step in its order, if there is one: ``"launches"``, ``"syncs"`` or ``"uploads"``,
the operation's name, and the CPU's values of what it was given and of what it returned."""
skipped: set[str] = set()
"""The names of products and attentions that return something of the right size, to count the steps of large models."""
COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from"}
"""The operations that may have operands on two devices."""
WAITING = {f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "equal", "masked_select", "is_nonzero")}
WAITING |= {f"aten::{name}" for name in ("unique_consecutive", "_unique2", "unique_dim", "bincount")}
"""The operations whose result the host needs before it can go on."""
INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
FREE = {f"aten::{name}" for name in ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")}
FREE |= {f"aten::{name}" for name in ("detach", "alias", "lift", "lift_fresh", "set_", "_local_scalar_dense")}
FREE |= {"aten::_unsafe_view", "aten::_reshape_alias"}
"""The operations that launch nothing."""
WHOLE = {f"aten::{name}" for name in ("linear", "scaled_dot_product_attention", "dropout", "embedding", "lstm")}
WHOLE |= {"aten::_pad_packed_sequence"}
"""The compositions that a GPU has a kernel of its own for."""
PACKING = {"aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::lstm"}
"""The operations whose lengths are the host's on every device."""


class Module:
    """What torch, accelerate and transformers find as ``torch.sim``: one device. Random numbers are the CPU's."""

    @staticmethod
    def is_available():
        return True

    is_initialized = is_available

    @staticmethod
    def _is_in_bad_fork():
        return False

    @staticmethod
    def device_count():
        return 1

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def get_rng_state(device=None):
        return torch.empty(0, dtype=torch.uint8)

    @staticmethod
    def nothing(*given):
        return None

    set_rng_state = manual_seed = manual_seed_all = set_device = synchronize = nothing


def missing() -> str | None:
    """The reason why there is no such device with this version of torch; None where there is one."""
    if hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        return None
    return f"torch {torch.__version__} has no devices that are written in Python"


def reset() -> None:
    for counter in (launches, syncs, uploads):
        counter.clear()


def counts() -> dict[str, int]:
    return {name: sum(counter.values()) for name, counter in by_line().items()}


def by_line() -> dict[str, collections.Counter]:
    return {"launches": launches, "syncs": syncs, "uploads": uploads}


class SimTensor(torch.Tensor):
    """A tensor on the device; ``raw`` is the CPU's tensor with its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw):
        shape = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, raw.size(), **shape, device=torch.device(NAME, 0))

    def __init__(self, raw):
        self.raw = raw

    def data_ptr(self):
        return self.raw.data_ptr()

    def tolist(self):
        syncs[_line()] += 1
        return self.raw.tolist()

    def __repr__(self, **kwargs):
        return f"sim({self.raw!r})"

    def __deepcopy__(self, memo):
        copied = SimTensor(self.raw.detach().clone())
        memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if _is_parameter(self) else copied
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})


def _is_parameter(tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)


def _line() -> str:
    """The innermost line of the package that is being run."""
    frame = sys._getframe(1)
    while frame:
        _, inside, rest = frame.f_code.co_filename.rpartition("pyterrier_cascade/")
        if inside:
            return f"{rest}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def _here(device) -> bool:
    return device is not None and torch.device(device).type == NAME


def _dispatch(func, args, kwargs):
    name = func._schema.name
    # In inference mode compositions arrive as they are.
    if name not in WHOLE and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        found = func.decompose(*args, **kwargs)
        if found is not NotImplemented:
            return found
    flat, spec = tree_flatten((args, kwargs))
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    ours, hosts = ([x for x in tensors if isinstance(x, SimTensor) is mine] for mine in (True, False))
    steps = []
    if ours and name not in COPIES:
        steps += ["uploads"] * _uploaded_indices(name, args, hosts)
    target = kwargs.get("device")
    to_sim, crosses = bool(ours) if target is None else _here(target), False
    if name == "aten::_to_copy":
        crosses = to_sim != bool(ours)
    elif name in COPIES:
        to_sim, crosses = isinstance(args[name != "aten::copy_"], SimTensor), bool(ours and hosts)
    is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
    steps += _steps(name, args, kwargs, crosses and to_sim, crosses and not to_sim, is_view)
    for step in steps:
        by_line()[step][_line()] += 1
    if name == "aten::dropout" and not args[2]:
        return args[0]
    given, options = tree_unflatten([_raw(x) for x in flat], spec)
    options.pop("pin_memory", None)
    if name == "aten::_copy_from":
        given[1].copy_(given[0])
        return args[1]
    if name in skipped:
        result = _stand_in(name, *given[:2])
    elif name == "torch_attn::_varlen_attn":
        result = _varlen(*given)
    else:
        result = func(*given, **options)
    if watch is not None:
        for step in steps:
            watch(step, name, given, result)
    # What is changed in place is returned as the very tensor that was given.
    same = {id(_raw(x)): x for x in tensors}

    def back(x):
        if not isinstance(x, torch.Tensor) or id(x) in same or not to_sim:
            return same.get(id(x), x)
        # A view of a tensor from outside of inference mode is none of inference mode either.
        inference = torch.is_inference_mode_enabled() and not (is_view and not ours[0].is_inference())
        with torch.inference_mode(inference):
            return SimTensor(x)

    if name in ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence"):
        return back(result[0]), result[1]
    return tree_map(back, result)


def _raw(x):
    if isinstance(x, torch.device):
        return torch.device("cpu")
    return x.raw if isinstance(x, SimTensor) else x


def _uploaded_indices(name, args, hosts) -> int:
    """Returns the number of indices that come from the host; raises where other operands are on two devices.

    Single numbers, and lengths for an LSTM, may come from the host.
    """
    strays, listed = [x for x in hosts if x.dim() and not (name in PACKING and x.dtype == torch.int64)], []
    if name in INDEXING:
        listed = [x for x in args[1] if x is not None and not isinstance(x, SimTensor)]
        strays = [x for x in strays if not any(x is one for one in listed)]
    if strays:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found sim:0 and cpu in {name} at {_line()}"
        )
    return len(listed)


def _steps(name, args, kwargs, is_upload: bool, is_download: bool, is_view: bool) -> list[str]:
    by_mask = name in INDEXING and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    unknown_size = name == "aten::repeat_interleave" and kwargs.get("output_size") is None
    if is_upload:
        return ["uploads"]
    if is_download:
        return ["syncs"]
    is_nothing = name == "aten::dropout" and not args[2]
    launch = [] if is_view or is_nothing or name in FREE else ["launches"]
    return launch + ["syncs"] * (name in WAITING or by_mask or unknown_size)


def _stand_in(name, first, second):
    if name == "aten::linear":
        return first[..., :1] * second[:, 0]
    # What an attention returns lies in memory as its queries do.
    found = first.clone()
    if name == "torch_attn::_varlen_attn":
        return found, first.new_empty(0, dtype=torch.float32), torch.zeros(2, dtype=torch.uint64)
    return found


def _varlen(query, key, value, q_ends, k_ends, max_q, max_k, causal, scale, window, *rest):
    """The kernel for attention of inputs of any lengths, which the CPU has not got. Windows are aligned at the end."""
    found = torch.empty_like(query)
    q_ends, k_ends = q_ends.tolist(), k_ends.tolist()
    for n in range(len(q_ends) - 1):
        rows, seen = slice(*q_ends[n : n + 2]), slice(*k_ends[n : n + 2])
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[seen], value[seen]))
        mask = None
        if window and window[0] >= 0:
            mask = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])
            mask = mask.abs() <= window[0]
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        found[rows] = attended.transpose(0, 1)
    return found, query.new_empty(0, dtype=torch.float32), torch.zeros(2, dtype=torch.uint64)


def _on_device(func):
    return lambda *args, **kwargs: _dispatch(func, args, kwargs)


_library = None


def register() -> None:
    """Makes the device known to torch and to this package, once for the process."""
    global _library
    if _library is not None:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, Module)
    _library = torch.library.Library("aten", "IMPL")
    # Whatever makes a tensor from no other tensor does not arrive at SimTensor by itself.
    for full in torch._C._dispatch_get_all_op_names():
        package, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        if package == "aten" and hasattr(torch.ops.aten, base):
            func = getattr(getattr(torch.ops.aten, base), overload or "default", None)
            arguments = [] if func is None else func._schema.arguments
            makes = any(one.name == "device" for one in arguments)
            if makes and not any("Tensor" in str(one.type) for one in arguments):
                _library.impl(name, _on_device(func), "PrivateUse1")
    _library.impl("_copy_from", _on_device(torch.ops.aten._copy_from.default), "PrivateUse1")
    from pyterrier_cascade.encoder import device

    device.DEVICES = (*device.DEVICES, NAME)
