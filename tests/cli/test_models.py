"""The reranker in a folder, and its class with the settings of a command line."""

import pytest

from pyterrier_cascade import Cascade, registry
from pyterrier_cascade.cli import models


@pytest.mark.parametrize(
    ("fixture", "name"),
    [
        ("tiny_bert", "CrossEncoder"),
        ("cascade", "Cascade"),
        ("dcbert", "DCBERT"),
        ("hierarchical", "HierarchicalRanker"),
        ("encoder", None),
    ],
)
def test_a_folder_says_what_it_holds(request, fixture, name):
    found = models.held_by(request.getfixturevalue(fixture))
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("./nowhere", FileNotFoundError, "there is no folder './nowhere'; give one with a config.json"),
        ("{empty}", FileNotFoundError, "holds no model: it has no config.json"),
        ("no/where", OSError, "'no/where' is neither a folder nor a model on the Hub that can be read"),
    ],
)
def test_there_is_no_model(tmp_path, source, error, message):
    with pytest.raises(error, match=message):
        models.held_by(source.format(empty=tmp_path))


@pytest.mark.parametrize("one", [None, *registry.RERANKERS], ids=lambda one: one.name if one else "encoder")
def test_a_cache_is_made_by_a_dc_bert_or_an_encoder(one):
    if one is None or one.name in ("DCBERT", "CrossEncoder"):
        models.refuse_unless_dcbert("folder", one)
        return
    with pytest.raises(ValueError, match=f"'folder' holds a {one.name}; give a DC-BERT, or an encoder"):
        models.refuse_unless_dcbert("folder", one)


def test_settings_are_those_of_the_class():
    cascade = registry.by_command("cascade")
    given = ["alpha=0.4,0", "layers=1,3", "engine=openvino"]
    expected = Cascade.from_pretrained("there", layers=(1, 3), alpha=(0.4, 0.0), engine="openvino", verbose=True)
    assert models.load("there", cascade, given, verbose=True, unknown=1) == expected
    with pytest.raises(ValueError, match="--with has no 'alpha'"):
        models.load("there", cascade, given, skip=["alpha"])


def test_the_weights_decide_some_settings():
    found = models.load("there", registry.by_command("hierarchical"), ["precision=bf16"])
    assert found.precision == "bf16"
    with pytest.raises(ValueError, match="--with has no 'scheme'; there are device, precision"):
        models.load("there", registry.by_command("hierarchical"), ["scheme=RI"])
