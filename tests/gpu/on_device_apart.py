"""DC-BERT, late interaction, caches and the hierarchical ranker on the simulated GPU: the CPU's scores in few steps."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyterrier_cascade import DCBERT, Cascade, HierarchicalRanker
from pyterrier_cascade.dcbert import late
from pyterrier_cascade.dcbert.interaction import Interaction
from pyterrier_cascade.dcbert.one_way import OneWay
from pyterrier_cascade.encoder.families import Weights, take_apart
from tests import lists, tiny
from tests.dcbert.random_states import flat, texts
from tests.dcbert.test_interaction import Joint
from tests.gpu import sim
from tests.hierarchical.questions import SMALL, TEST, TRAIN, ranker, vector_file

sim.register()
pytestmark = pytest.mark.filterwarnings("ignore:.* fresh")
FRAME = lists.candidates([9, 6, 1])
DOCS = FRAME[["docno", "text"]].to_dict("records")
SIM = torch.device("sim")


@pytest.fixture(autouse=True)
def counted():
    sim.reset()


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("dcbert") / "bert", layers=3, outputs=None)


def scores(ranker, frame=FRAME) -> np.ndarray:
    return ranker(frame).sort_values(["qid", "docno"])["score"].to_numpy()


ONE_WAY = {"variant": "one_way", "joint_layers": 2}
PARTS = [{"variant": "lstm"}, {"joint_layers": 2}, {"variant": "one_way"}, {"variant": "linear"}]
PARTS += [{"head": "paper"}, {"head": "compare"}]


@pytest.mark.parametrize("parts", [{}, ONE_WAY, *(pytest.param(one, marks=pytest.mark.slow) for one in PARTS)], ids=str)
def test_dcbert(bare, tmp_path, parts):
    """From texts and from a cache, joint and late; the user's module stays on the CPU."""
    model, found = DCBERT.from_pretrained(bare, device="cpu", precision="fp32", **parts), {}
    caches = [model.encode(DOCS, tmp_path / dtype, dtype=dtype) for dtype in ("fp16", "int8")]
    there = model(device="sim").encode(DOCS, tmp_path / "there")
    assert there.meta["fingerprint"] == caches[0].meta["fingerprint"]
    for device in ("cpu", "sim"):
        rankers = [model, model(interaction="late"), model(passages="mean", document_length=12, interaction="late")]
        for cache in caches:
            rankers += [cache.reranker(model, interaction=one) for one in ("joint", "late")]
        found[device] = [scores(one(device=device)) for one in rankers]
    assert sim.launches
    for one, other in zip(found["sim"], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=0)
    # A state at the edge between two numbers of fp16 may be rounded to either.
    for interaction in ("joint", "late"):
        one, other = (cache.reranker(model, interaction=interaction, device="sim") for cache in (there, caches[0]))
        np.testing.assert_allclose(scores(one), scores(other), atol=2e-4, rtol=0)
    assert {parameter.device.type for parameter in model.model.loaded.module.parameters()} == {"cpu"}


@pytest.mark.parametrize("kind", [Interaction, OneWay])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_a_hundred_documents_of_a_question_are_one_step(kind, layers, dtype):
    """All documents are uploaded at once, and no operation takes one document."""
    (question,), documents = texts([7], seed=1), flat(texts(np.random.default_rng(0).integers(8, 14, 100)), dtype)
    joint = Joint(layers)
    want = kind(joint.layers, joint.positions, joint.types, joint.head).score(question, documents)
    there = take_apart(joint.encoder, Weights(SIM, torch.float32, together=True)).layers
    made = kind(there, joint.positions, joint.types, joint.head, SIM)
    sim.reset()
    found = made.score(question, documents)
    torch.testing.assert_close(found, want, atol=1e-5, rtol=0)
    assert sim.counts()["launches"] <= 40 + 20 * layers and sim.counts()["syncs"] == 1, sim.by_line()
    assert sim.counts()["uploads"] <= 4 + (dtype == "int8"), sim.by_line()


def test_late_interaction_is_one_step():
    (question,), documents = texts([7], seed=1), flat(texts([5, 9, 30] * 33), "fp16")
    want = late.score(question, documents)
    sim.reset()
    found = late.scorer(SIM)(question, documents)
    torch.testing.assert_close(found, want, atol=1e-6, rtol=0)
    assert sim.counts() == {"launches": sim.counts()["launches"], "syncs": 1, "uploads": 2}, sim.by_line()
    assert sim.counts()["launches"] <= 10
    assert late.scorer(SIM)(question, SimpleNamespace(states=documents.states[:0], lengths=[])).shape == (0,)


@pytest.mark.slow
def test_a_cache_of_a_gpu_is_read_on_a_cpu(bare, tmp_path):
    """Half precision was the GPU's choice; the CPU reads the same documents and encodes the questions in fp32."""
    model = DCBERT.from_pretrained(bare, device="sim")
    cache = model.encode(DOCS, tmp_path / "cache")
    assert cache.meta["precision"] == "fp16" and model.precision == "auto"
    there, here = cache.reranker(model), cache.reranker(model, device="cpu")
    np.testing.assert_allclose(scores(here), scores(there), atol=0.05, rtol=0)


OTHERS = [{"scheme": "RI", "level": "point"}, {"scheme": "MTL", "level": "pair"}]


@pytest.mark.parametrize("settings", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=str)
def test_the_hierarchical_ranker(tmp_path, settings):
    made = ranker(vectors=vector_file(tmp_path), **settings).fit_candidates(TRAIN)
    frame = TEST.assign(text=TEST["text"].where(np.arange(len(TEST)) % 4 > 0, "rare words of an unknown place . " * 3))
    want = scores(made(device="cpu"), frame)
    sim.reset()
    gpu = made(device="sim", precision="fp32")
    np.testing.assert_allclose(scores(gpu, frame), want, atol=1e-5, rtol=0)
    assert sim.launches and sim.counts()["syncs"] == 1, sim.by_line()
    assert {parameter.device.type for parameter in made.model.loaded.module.parameters()} == {"cpu"}
    assert 0 < np.abs(scores(made(device="sim"), frame) - want).max() < 0.1
    # The copy follows the weights.
    with torch.no_grad():
        made.model.loaded.module.encoding.weight.mul_(1.1)
    np.testing.assert_allclose(scores(gpu, frame), scores(made(device="cpu"), frame), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_options_of_the_hierarchical_ranker():
    for changes in ({"null_word": True}, {"k_max": (3, 2)}, {"projection": True}):
        made = HierarchicalRanker("PRI", architecture=dataclasses.replace(SMALL, **changes))
        want = scores(made(device="cpu"), TEST)
        np.testing.assert_allclose(scores(made(device="sim", precision="fp32"), TEST), want, atol=1e-5, rtol=0)


def test_distilling_reads_states_on_the_gpu(tmp_path):
    """Heads learn on the CPU from the states that the GPU read."""
    folder, found = tiny.save(tmp_path / "model", layers=3), []
    for device in ("cpu", "sim"):
        cascade = Cascade.from_cross_encoder(folder, layers=(1, 3), device=device, precision="fp32")
        found.append(scores(cascade.distil(lists.candidates([8] * 6))))
    np.testing.assert_allclose(*found, atol=0.02, rtol=0)
