"""A saved cascade of six layers, for the tests of several folders."""

import pytest

from pyterrier_cascade import Cascade
from tests import tiny


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """A bare encoder of six layers."""
    return tiny.save(tmp_path_factory.mktemp("encoder") / "six", layers=6, outputs=None)


@pytest.fixture(scope="session")
def saved(encoder, tmp_path_factory) -> str:
    """A cascade with heads at layers 2, 3, 4, 5 and 6 that tell candidates apart and says that it is trained."""
    cascade = Cascade.from_pretrained(encoder)
    module = cascade.model.loaded.module
    for head in module.heads:
        for linear in head[::3]:
            linear.weight.data *= 20
    module.config.trained_on = {"data": "made up", "questions": 0, "candidates": 0, "positives": 0, "training": "-"}
    folder = str(tmp_path_factory.mktemp("cascade") / "saved")
    cascade.save_pretrained(folder)
    return folder


@pytest.fixture
def cascade(saved) -> Cascade:
    return Cascade.from_pretrained(saved)
