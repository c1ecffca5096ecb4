"""Weights come from safetensors alone."""

import re
from pathlib import Path

import pytest
import torch

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, HierarchicalRanker
from tests import tiny

RANKERS = [CrossEncoder, Cascade, DCBERT]


class Deadly:
    """Says when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: ranker.__name__)
def test_pickled_weights_are_not_loaded(tmp_path, ranker):
    folder = Path(tiny.save(tmp_path / "model", layers=4, outputs=None))
    (folder / "model.safetensors").unlink()
    torch.save(Deadly(tmp_path / "dead"), folder / "pytorch_model.bin")
    expected = re.escape(
        f"{str(folder)!r} has pickled weights only (pytorch_model.bin), which may run any code and are not loaded; "
        "load them where you trust them and save them again by transformers' save_pretrained, which writes safetensors"
    )
    with pytest.raises(ValueError, match=f"^{expected}$"):
        ranker.from_pretrained(str(folder)).model.loaded  # noqa: B018
    assert not (tmp_path / "dead").exists()


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: ranker.__name__)
def test_damaged_weights_are_named(tmp_path, ranker):
    folder = Path(tiny.save(tmp_path / "model", layers=4, outputs=None))
    _cut(folder / "model.safetensors")
    with pytest.raises(
        ValueError, match=rf"^the weights in '{folder}' are damaged \(.+\); save or download them again$"
    ):
        ranker.from_pretrained(str(folder)).model.loaded  # noqa: B018


def test_damaged_weights_of_a_hierarchical_ranker_are_named(tmp_path):
    HierarchicalRanker("CA", "list").save_pretrained(str(tmp_path / "model"))
    _cut(next((tmp_path / "model").glob("*.safetensors")))
    with pytest.raises(ValueError, match=rf"^the weights in '{tmp_path / 'model'}' are damaged "):
        HierarchicalRanker.from_pretrained(str(tmp_path / "model")).model.loaded  # noqa: B018


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])
