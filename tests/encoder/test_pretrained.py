"""Reading saved models: weights come from safetensors alone, and nothing of the caller's settings changes."""

import re
from pathlib import Path

import pytest
import torch
import transformers

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, HierarchicalRanker
from pyterrier_cascade.encoder.pretrained import config_fields, fixed_seed, silenced, tokenizer_for
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


def test_fresh_weights_are_the_same_every_time_and_the_callers_generator_goes_on():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    drawn = []
    for _ in range(2):
        with fixed_seed():
            drawn.append(torch.rand(2))
    assert torch.equal(*drawn) and torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("bar", [True, False])
def test_the_callers_verbosity_comes_back(bar):
    logging = transformers.utils.logging
    before, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        (logging.enable_progress_bar if bar else logging.disable_progress_bar)()
        logging.set_verbosity_info()
        with pytest.raises(KeyError), silenced():
            assert logging.get_verbosity() == logging.ERROR and not logging.is_progress_bar_enabled()
            raise KeyError
        assert logging.get_verbosity() == logging.INFO and logging.is_progress_bar_enabled() is bar
    finally:
        logging.set_verbosity(before)
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()


def test_a_slow_tokenizer_is_refused(tiny_bert, monkeypatch):
    module = transformers.AutoModel.from_pretrained(tiny_bert, trust_remote_code=False)
    assert tokenizer_for(module, tiny_bert).is_fast and config_fields(tiny_bert)["model_type"] == "bert"
    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "is_fast", False)
    with pytest.raises(ValueError, match=rf"'{tiny_bert}' has no fast tokenizer; save one beside it \(tokenizer.json"):
        tokenizer_for(module, tiny_bert)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])
