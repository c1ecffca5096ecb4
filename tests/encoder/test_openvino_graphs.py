"""Spans as OpenVINO graphs: conversion, quantisation, and files that no other weights ever get."""

import dataclasses
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pyterrier_cascade import CrossEncoder, Training, optional
from pyterrier_cascade.encoder import openvino_graphs
from pyterrier_cascade.encoder.families import Weights, take_apart
from tests import tiny
from tests.encoder import spans
from tests.encoder.candidates import frame, scores

pytest.importorskip("openvino", reason="the extra [openvino] is not installed")


@pytest.fixture
def folder(tmp_path) -> str:
    return tiny.save(tmp_path / "model")


@pytest.mark.slow
def test_mixed_spares_the_maps_back_from_the_feed_forward_width(encoder):
    """In a layer five maps are quantised, or all but the last."""
    apart = take_apart(encoder("bert"), Weights(torch.device("cpu"), torch.float32))
    pairs = spans.inputs([9] * 4)
    states = apart.embeddings(pairs, np.arange(4)).unflatten(0, (4, 9))
    given = [np.ones((4, 9), dtype=bool), states.numpy()]
    for mixed, expected in ((False, []), (True, ["down"] * 4)):
        (graph,) = openvino_graphs.converted(apart, spans.heads(layers=(4,)))
        (found,) = openvino_graphs.quantized([graph], [given], mixed)
        exact = [
            op.get_friendly_name().split("/")[0].split(".")[-1]
            for op in found.get_ops()
            if op.get_type_name() == "MatMul"
            and "layers" in op.get_friendly_name()
            and op.input_value(0).get_node().get_type_name() != "FakeQuantize"
        ]
        assert exact == expected


def test_graphs_are_made_once_and_kept_beside_the_model(folder, tmp_path, monkeypatch):
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino")
    expected = scores(ranker)
    kept = sorted((tmp_path / "model" / "openvino").iterdir())
    assert [path.name[:6] for path in kept] == ["exact-"] and [p.name for p in kept[0].iterdir()]

    def refuse(*args):
        raise AssertionError("converted again")

    monkeypatch.setattr(openvino_graphs, "converted", refuse)
    again = CrossEncoder.from_pretrained(folder, engine="openvino")
    np.testing.assert_array_equal(scores(again), expected)
    # bf16 is the same graph, computed otherwise.
    low = scores(again(precision="bf16"))
    assert np.abs(low - expected).max() > 1e-4 and np.corrcoef(low, expected)[0, 1] > 0.98


def test_damaged_graphs_are_made_again(folder, tmp_path):
    """Also those of other weights under the name of these, and graphs that a version without checksums kept."""
    expected = scores(CrossEncoder.from_pretrained(folder, engine="openvino"))
    (kept,) = (tmp_path / "model" / "openvino").iterdir()
    other = CrossEncoder.from_pretrained(tiny.save(tmp_path / "other", seed=1), engine="openvino")
    assert np.abs(scores(other) - expected).max() > 0.01
    (theirs,) = (tmp_path / "other" / "openvino").iterdir()

    def exchange():
        for path in kept.iterdir():
            path.write_bytes((theirs / path.name).read_bytes())

    for damage in (exchange, (kept / "files.json").unlink):
        damage()
        np.testing.assert_array_equal(scores(CrossEncoder.from_pretrained(folder, engine="openvino")), expected)
        assert [path.name for path in kept.parent.iterdir()] == [kept.name] and (kept / "files.json").is_file()


def test_other_weights_never_get_these_graphs(folder, tmp_path):
    first = scores(CrossEncoder.from_pretrained(folder, engine="openvino"))
    tiny.save(tmp_path / "model", seed=1)
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino")
    np.testing.assert_allclose(scores(ranker), scores(ranker(engine="torch")), atol=1e-5)
    assert np.abs(scores(ranker) - first).max() > 0.01
    assert len(list((tmp_path / "model" / "openvino").iterdir())) == 2


def test_a_trained_ranker_is_converted_anew(folder, tmp_path):
    training = Training(epochs=1, learning_rate=1e-2, precision="fp32")
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", training=training)
    before = scores(ranker)
    ranker.fit_candidates(frame().assign(label=np.arange(40) % 2))
    after = scores(ranker)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, scores(ranker(engine="torch")), atol=1e-5)
    # These weights lie nowhere yet, and so does nothing beside them.
    assert len(list((tmp_path / "model" / "openvino").iterdir())) == 1


def test_a_conversion_that_was_killed_is_not_taken_for_whole(folder, tmp_path, monkeypatch):
    import openvino

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(openvino, "save_model", fail)
        with pytest.raises(KeyboardInterrupt):
            scores(CrossEncoder.from_pretrained(folder, engine="openvino"))
    assert list((tmp_path / "model" / "openvino").iterdir()) == []
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino")
    np.testing.assert_allclose(scores(ranker), scores(ranker(engine="torch")), atol=1e-5)


def test_without_a_place_to_keep_them_graphs_are_made_anew(folder, tmp_path):
    (tmp_path / "file").write_text("")
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino")
    ranker.model.cache = lambda name: tmp_path / "file" / "cache"
    message = "compiled models cannot be kept in .*Not a directory.*, so that every process makes them anew"
    with pytest.warns(UserWarning, match=message):
        found = scores(ranker)
    np.testing.assert_allclose(found, scores(ranker(engine="torch")), atol=1e-5)


def test_the_fingerprint_covers_everything_that_decides_the_graphs(folder, tmp_path, monkeypatch):
    """And not by how their folder is spelt."""

    def known(**more):
        loaded = CrossEncoder.from_pretrained(folder, **more).model.loaded.executors
        return loaded.encoder, loaded.heads

    encoder, heads = known()
    digest = openvino_graphs.fingerprint(encoder, heads)
    monkeypatch.chdir(Path(folder).parent)
    again = CrossEncoder.from_pretrained(f"./{Path(folder).name}").model.loaded.executors
    assert openvino_graphs.fingerprint(again.encoder, again.heads) == digest
    other = [
        openvino_graphs.fingerprint(encoder, [dataclasses.replace(heads[0], layer=heads[0].layer - 1)]),
        openvino_graphs.fingerprint(encoder, [dataclasses.replace(heads[0], pooling="mean")]),
        openvino_graphs.fingerprint(encoder, heads, np.ones(3)),
    ]
    with torch.no_grad():
        next(heads[0].module.parameters()).add_(1)
    other.append(openvino_graphs.fingerprint(encoder, heads))
    monkeypatch.setattr(openvino_graphs, "version", lambda package: "0")
    other.append(openvino_graphs.fingerprint(encoder, heads))
    monkeypatch.setattr(openvino_graphs.inspect, "getsource", lambda code: code.__name__)
    other.append(openvino_graphs.fingerprint(encoder, heads))
    seen = []
    monkeypatch.setattr(openvino_graphs.inspect, "getsource", lambda code: (seen.append(code.__name__), "")[1])
    other.append(openvino_graphs.fingerprint(encoder, heads))
    monkeypatch.setattr(encoder.config, "layer_norm_eps", 1e-3)
    other.append(openvino_graphs.fingerprint(encoder, heads))
    assert digest not in other and len(set(other)) == len(other)
    assert {f"pyterrier_cascade.encoder.{name}" for name in ("linear", "heads", "families.bert")} <= set(seen)


@pytest.mark.parametrize("notebook", [False, True])
def test_calibration_shows_no_bars_of_a_library(folder, capsys, monkeypatch, notebook):
    import rich

    console = rich.get_console()
    monkeypatch.setattr(console, "is_jupyter", notebook)
    shown = []
    monkeypatch.setattr("rich.jupyter.display", lambda *args: shown.append(args))
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        scores(ranker)
    assert (capsys.readouterr().out, shown) == ("", [])
    assert rich.get_console() is console and console.is_jupyter is notebook


def test_a_missing_extra_is_an_error_at_the_door(monkeypatch):
    monkeypatch.setattr(optional, "find_spec", lambda name: None)
    message = "engine='openvino' needs openvino and nncf: pip install \"pyterrier_cascade[openvino]\""
    with pytest.raises(ImportError, match=re.escape(message)):
        CrossEncoder.from_pretrained("anything", engine="openvino")


def test_a_conversion_that_fails_is_an_error_not_another_engine(folder, monkeypatch):
    import openvino

    def fail(*args, **kwargs):
        raise ValueError("no such operation")

    monkeypatch.setattr(openvino, "convert_model", fail)
    with pytest.raises(
        RuntimeError, match=r"could not convert the layers up to layer 2 \(no such operation\); use eng"
    ):
        scores(CrossEncoder.from_pretrained(folder, engine="openvino"))
