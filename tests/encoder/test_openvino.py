"""The same spans as OpenVINO graphs: equal in fp32, near below, kept on disk, and loud where they cannot be had."""

import dataclasses
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_cascade import CrossEncoder, SequentialReranker, Training
from pyterrier_cascade.encoder import engine, openvino_graphs
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.openvino_executor import CALIBRATION, OpenVINOExecutor
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests import tiny
from tests.encoder import spans

pytest.importorskip("openvino", reason="the extra [openvino] is not installed")

LENGTHS = np.random.default_rng(0).integers(2, 60, 60)


def exact(encoder, pairs: TokenPairs, pooling: str) -> np.ndarray:
    return engine.run(TorchExecutor(encoder, spans.heads(pooling), torch.device("cpu")), pairs)


def everyone(head, rows, scores):
    return rows


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_layer_is_torchs(encoder, family):
    """In one go and from head to head, in blocks of shapes that the conversion never saw."""
    model, pairs = encoder(family), spans.inputs(LENGTHS)
    for pooling in ("cls", "mean_nocls"):
        made = OpenVINOExecutor(model, spans.heads(pooling), "fp32")
        expected = exact(model, pairs, pooling)
        np.testing.assert_allclose(engine.run(made, pairs), expected, atol=1e-5, rtol=2e-6)
        staged = engine.run(made, pairs, np.arange(60) // 6, everyone)
        np.testing.assert_allclose(staged, expected, atol=1e-5, rtol=2e-6)


def test_bf16_and_int8_are_near(encoder):
    model, pairs = encoder("bert"), spans.inputs(LENGTHS)
    expected = exact(model, pairs, "mean_nocls")
    for precision, least in (("bf16", 0.999), ("int8", 0.98), ("mixed", 0.98)):
        made = OpenVINOExecutor(model, spans.heads(), precision, calibration=pairs)
        got = engine.run(made, pairs)
        staged = engine.run(made, pairs, np.arange(60) // 6, everyone)
        for head in range(3):
            assert np.corrcoef(got[:, head], expected[:, head])[0, 1] > least
            assert np.corrcoef(staged[:, head], expected[:, head])[0, 1] > least
        assert np.abs(got - expected).max() > 1e-4


def test_mixed_spares_the_maps_back_from_the_feed_forward_width(encoder):
    """In a layer five maps are quantised, or all but the last."""
    apart = take_apart(encoder("bert"), Weights(torch.device("cpu"), torch.float32))
    pairs = spans.inputs([9] * 4)
    given = [np.ones((4, 9), dtype=bool), *(np.zeros((4, 9), dtype=np.int64) for _ in apart.embeddings.tables)]
    given[1][:] = pairs.columns["input_ids"].reshape(4, 9)
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


def test_states_between_heads_lose_nothing(encoder):
    """In bf16 states cross from span to span in bf16, as they are inside: scores do not depend on the crossing."""
    model, pairs = encoder("bert"), spans.inputs([20] * 8)
    made = OpenVINOExecutor(model, spans.heads(), "bf16")
    whole = engine.run(made, pairs)
    np.testing.assert_allclose(engine.run(made, pairs, np.zeros(8, int), everyone), whole, atol=1e-6)


def frame(n: int = 40) -> pd.DataFrame:
    texts = [f"the town was founded in {1800 + i} by the ship " + "of the town " * (i % 7) for i in range(n)]
    return pd.DataFrame(
        {"qid": "1", "query": "who founded the town", "docno": [f"d{i}" for i in range(n)], "text": texts}
    )


def scores(ranker, candidates=None) -> np.ndarray:
    return ranker(frame() if candidates is None else candidates).sort_values("docno")["score"].to_numpy()


@pytest.fixture
def folder(tmp_path) -> str:
    return tiny.save(tmp_path / "model")


def test_the_ranker_is_the_same_in_every_engine(folder):
    plain = CrossEncoder.from_pretrained(folder)
    fast = plain(engine="openvino")
    assert repr(fast) == f"CrossEncoder.from_pretrained({folder!r}, engine='openvino')"
    np.testing.assert_allclose(scores(fast), scores(plain), atol=1e-5)
    low = scores(fast(precision="int8"))
    assert np.corrcoef(low, scores(plain))[0, 1] > 0.98 and np.abs(low - scores(plain)).max() > 1e-4


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


def test_int8_is_calibrated_on_what_the_user_gives(folder, tmp_path):
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    default = scores(ranker)
    assert ranker.calibrate(frame().assign(query="what is the ship", text="ship " * 30)) is ranker
    other = scores(ranker)
    assert np.abs(other - default).max() > 1e-4
    ranker.calibrate(frame())
    np.testing.assert_array_equal(scores(ranker), default)
    # Kept for each calibration: the third one above and a new process find the first.
    assert len(list((tmp_path / "model" / "openvino").glob("int8-*"))) == 2
    again = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    np.testing.assert_array_equal(scores(again), default)


def test_without_a_place_to_keep_them_graphs_are_made_anew(folder, tmp_path):
    (tmp_path / "file").write_text("")
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino")
    ranker.model.cache = lambda name: tmp_path / "file" / "cache"
    message = "compiled models cannot be kept in .*Not a directory.*, so that every process makes them anew"
    with pytest.warns(UserWarning, match=message):
        found = scores(ranker)
    np.testing.assert_allclose(found, scores(ranker(engine="torch")), atol=1e-5)


def test_graphs_are_known_by_all_that_they_follow_from(folder, tmp_path, monkeypatch):
    """And not by how their folder is spelt."""
    from pyterrier_cascade.encoder import openvino_graphs

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
    assert {"pyterrier_cascade.encoder.linear", "pyterrier_cascade.crossencoder.model"} <= set(seen)


def test_a_trace_is_of_one_calibration(folder, tmp_path):
    """That of all its candidates, so that it is the same when it is gone on with."""

    def fresh():
        return SequentialReranker([CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")])

    given = pd.concat([frame().assign(qid=qid, query=f"what {qid}") for qid in ("ship", "town")], ignore_index=True)
    fresh().trace(given, tmp_path / "trace")
    assert len(fresh().trace(given, tmp_path / "trace")) == len(given)
    with pytest.raises(ValueError, match="whose weights or settings are not those of"):
        fresh().trace(frame(), tmp_path / "trace")


def test_copies_are_calibrated_alike(folder):
    """Such as those that a pool's workers have, and copies of these."""
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    ranker.calibrate(frame().assign(query="what is the ship", text="ship " * 30))
    copies = [ranker.apart(), ranker.apart().apart()]
    few = frame(3)
    for copy in copies:
        np.testing.assert_array_equal(copy(few)["score"], ranker(few)["score"])


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


def test_too_few_candidates_to_calibrate_on(folder):
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    message = (
        "int8 is calibrated on the candidates that are scored first, at least 32, but these are 3; "
        "call calibrate(results) with some hundred candidates before"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        ranker(frame(3))
    # Those are forgotten: more may come.
    assert len(ranker.apart()(frame())) == len(frame())
    with pytest.raises(ValueError, match="int8 needs at least 32 candidates to calibrate on, not 0"):
        ranker.calibrate(frame(0))
    ranker.calibrate(frame())
    assert len(ranker(frame(3))) == 3


def test_calibration_takes_evenly_from_all_candidates(folder):
    ranker = CrossEncoder.from_pretrained(folder, engine="openvino", precision="int8")
    ranker.calibrate(frame(1_000))
    taken = ranker.model.loaded.executors.calibration
    assert len(taken.lengths) == CALIBRATION[1]
    assert taken.owner[[0, 1, -1]].tolist() == [0, 3, 999]


def test_a_missing_extra_is_said_at_the_door(monkeypatch):
    monkeypatch.setattr(openvino_graphs, "find_spec", lambda name: None)
    with pytest.raises(ImportError) as error:
        CrossEncoder.from_pretrained("anything", engine="openvino")
    message = "engine='openvino' needs openvino and nncf: pip install \"pyterrier_cascade[openvino]\""
    assert str(error.value) == message


def test_a_conversion_that_fails_is_an_error_not_another_engine(folder, monkeypatch):
    import openvino

    def fail(*args, **kwargs):
        raise ValueError("no such operation")

    monkeypatch.setattr(openvino, "convert_model", fail)
    with pytest.raises(
        RuntimeError, match=r"could not convert the layers up to layer 2 \(no such operation\); use eng"
    ):
        scores(CrossEncoder.from_pretrained(folder, engine="openvino"))


FORKED = """
import os, sys
sys.path[:0] = {path!r}
import numpy as np
from pyterrier_cascade import CrossEncoder
from tests.encoder.test_openvino import frame
ranker = CrossEncoder.from_pretrained({folder!r}, engine="openvino")
ranker(frame())
pid = os.fork()
if pid == 0:
    try:
        ranker(frame())
    except RuntimeError as error:
        print(error, flush=True)
    assert len(ranker(engine="torch")(frame())) == 40
    os._exit(0)
print(os.waitpid(pid, 0)[1], len(ranker(frame())))
"""


def test_a_forked_process_is_told(folder):
    program = FORKED.format(path=sys.path, folder=folder)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert out.stdout == (
        "OpenVINO does not live on in a forked process; start processes by 'spawn' "
        "(multiprocessing.set_start_method), or use engine='torch'\n0 40\n"
    ), out.stderr[-2_000:]
