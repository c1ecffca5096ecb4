"""The table of public names and rerankers."""

import json
import re
from pathlib import Path

import pytest

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, HierarchicalRanker, SequentialReranker, registry
from pyterrier_cascade.ranker import Ranker

PACKAGE = Path(registry.__file__).parent


def test_the_stub_is_made_from_the_table():
    assert (PACKAGE / "__init__.pyi").read_text(encoding="utf-8") == registry.stub()


@pytest.mark.parametrize("one", registry.RERANKERS, ids=lambda one: one.name)
def test_every_entry_is_a_ranker_with_its_training(one):
    assert issubclass(one.cls, Ranker) and one.cls.__name__ == one.name
    assert one.cls is registry.by_command(one.command).cls
    if one.training is not None:
        assert one.training_class.__name__ == one.training


def test_the_model_type_is_what_the_loader_writes():
    from pyterrier_cascade.cascade.model import CascadeConfig
    from pyterrier_cascade.dcbert.model import DCBertConfig

    found = {one.name: one.model_type for one in registry.RERANKERS}
    assert found["Cascade"] == CascadeConfig.model_type and found["DCBERT"] == DCBertConfig.model_type


FOLDERS = {
    "Cascade": {"config.json": json.dumps({"model_type": "cascade_transformer"})},
    "DCBERT": {"config.json": json.dumps({"model_type": "dc_bert"})},
    "HierarchicalRanker": {"config.json": json.dumps({"model_type": "hierarchical_ranker"})},
    "SequentialReranker": {"layers-02/config.json": json.dumps({"model_type": "bert"})},
}
LOADERS = {cls.__name__: cls for cls in (Cascade, CrossEncoder, DCBERT, HierarchicalRanker)}


@pytest.mark.parametrize("wanted", LOADERS)
@pytest.mark.parametrize("held", FOLDERS)
def test_a_folder_of_another_class_names_the_one_that_loads_it(wanted, held, tmp_path):
    for name, content in FOLDERS[held].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert registry.holds(str(tmp_path)).name == held
    if wanted == held:
        return
    message = f"holds a {held}, not a {wanted}; use {held}.from_pretrained"
    with pytest.raises(ValueError, match=re.escape(message)):
        _ = LOADERS[wanted].from_pretrained(str(tmp_path)).model.loaded


@pytest.mark.parametrize("held", [name for name in FOLDERS if name != "SequentialReranker"])
def test_a_sequential_reranker_is_not_made_of_another_ranker(held, tmp_path):
    for name, content in FOLDERS[held].items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"holds a {held}, not a SequentialReranker")):
        SequentialReranker.from_pretrained(str(tmp_path))


@pytest.mark.parametrize("content", [{}, {"model_type": "bert"}, {"model_type": None}])
def test_any_other_folder_is_nobodys(content, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert registry.holds(str(tmp_path)) is None and registry.holds(str(tmp_path / "nowhere")) is None
