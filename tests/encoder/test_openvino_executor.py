"""The same spans on OpenVINO: equal in fp32, near in lower precisions, calibrated on the user's candidates."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_cascade import CrossEncoder, SequentialReranker
from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.device import CALIBRATION
from pyterrier_cascade.encoder.openvino_executor import OpenVINOExecutor
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests import tiny
from tests.encoder import spans
from tests.encoder.candidates import frame, scores

pytest.importorskip("openvino", reason="the extra [openvino] is not installed")

LENGTHS = np.random.default_rng(0).integers(2, 60, 60)


def exact(encoder, pairs: TokenPairs, pooling: str) -> np.ndarray:
    return engine.run(TorchExecutor(encoder, spans.heads(pooling), torch.device("cpu")), pairs)


def everyone(head, rows, scores):
    return rows


@pytest.fixture
def folder(tmp_path) -> str:
    return tiny.save(tmp_path / "model")


# BERT's layers are in the other tests; the other families differ in their embeddings, which torch computes.
FAST = ("modernbert",)


@pytest.mark.parametrize(
    "family", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in tiny.FAMILIES]
)
def test_every_layer_is_torchs(encoder, family):
    """In one go and from head to head, in blocks of shapes that the conversion never saw."""
    model, pairs = encoder(family), spans.inputs(LENGTHS)
    for pooling in ("cls", "mean_nocls"):
        made = OpenVINOExecutor(model, spans.heads(pooling), "fp32")
        expected = exact(model, pairs, pooling)
        np.testing.assert_allclose(engine.run(made, pairs), expected, atol=1e-5, rtol=2e-6)
        staged = engine.run(made, pairs, np.arange(60) // 6, everyone)
        np.testing.assert_allclose(staged, expected, atol=1e-5, rtol=2e-6)


@pytest.mark.parametrize(
    ("precision", "least"),
    [
        pytest.param("bf16", 0.999, marks=pytest.mark.slow),
        ("int8", 0.98),
        pytest.param("mixed", 0.98, marks=pytest.mark.slow),
    ],
)
def test_lower_precisions_are_near(encoder, precision, least):
    model, pairs = encoder("bert"), spans.inputs(LENGTHS)
    expected = exact(model, pairs, "mean_nocls")
    made = OpenVINOExecutor(model, spans.heads(), precision, calibration=pairs)
    got = engine.run(made, pairs)
    staged = engine.run(made, pairs, np.arange(60) // 6, everyone)
    for head in range(3):
        assert np.corrcoef(got[:, head], expected[:, head])[0, 1] > least
        assert np.corrcoef(staged[:, head], expected[:, head])[0, 1] > least
    assert np.abs(got - expected).max() > 1e-4


def test_states_between_heads_lose_nothing(encoder):
    """In bf16 states cross from span to span in bf16, as they are inside: scores do not depend on the crossing."""
    model, pairs = encoder("bert"), spans.inputs([20] * 8)
    made = OpenVINOExecutor(model, spans.heads(), "bf16")
    whole = engine.run(made, pairs)
    np.testing.assert_allclose(engine.run(made, pairs, np.zeros(8, int), everyone), whole, atol=1e-6)


def test_the_ranker_is_the_same_in_every_engine(folder):
    plain = CrossEncoder.from_pretrained(folder)
    fast = plain(engine="openvino")
    assert repr(fast) == f"CrossEncoder.from_pretrained({folder!r}, engine='openvino')"
    np.testing.assert_allclose(scores(fast), scores(plain), atol=1e-5)
    low = scores(fast(precision="int8"))
    assert np.corrcoef(low, scores(plain))[0, 1] > 0.98 and np.abs(low - scores(plain)).max() > 1e-4


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


FORKED = """
import os, sys
sys.path[:0] = {path!r}
import numpy as np
from pyterrier_cascade import CrossEncoder
from tests.encoder.candidates import frame
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


def test_a_forked_process_gets_an_error(folder):
    program = FORKED.format(path=sys.path, folder=folder)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert out.stdout == (
        "OpenVINO does not work in a forked process; start processes by 'spawn' "
        "(multiprocessing.set_start_method), or use engine='torch'\n0 40\n"
    ), out.stderr[-2_000:]
