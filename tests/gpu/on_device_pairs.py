"""Rankers that read pairs, on the simulated GPU: the CPU's scores, few launches, hardly a wait."""

import numpy as np
import pytest
import torch
import transformers

from pyterrier_cascade import Cascade, CrossEncoder, SequentialReranker
from pyterrier_cascade.encoder import engine, torch_executor
from pyterrier_cascade.encoder.device import device_of, scoring_precision
from pyterrier_cascade.encoder.layout import POOLINGS
from tests import lists, tiny
from tests.encoder import spans
from tests.gpu import sim

sim.register()
FRAME = lists.candidates([9, 6, 1])


@pytest.fixture(autouse=True)
def counted():
    sim.reset()


@pytest.fixture
def varlen(request, monkeypatch):
    """With the kernel for inputs of any lengths, and without it, as on a T4 or in fp32."""
    monkeypatch.setattr(torch_executor, "has_varlen", lambda *given: request.param)
    return request.param


def both(*names, quick):
    """Names with the kernel and with masks; what is not quick is slow."""
    every = [(name, kind) for name in names for kind in (True, False)]
    return pytest.mark.parametrize(
        ("name", "varlen"),
        [pytest.param(*one, marks=() if one in quick else pytest.mark.slow) for one in every],
        indirect=["varlen"],
        ids=lambda value: {True: "kernel", False: "masks"}.get(value, value),
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("models"), {}

    def folder(family="bert", layers=4, outputs=None, **more):
        key = (family, layers, outputs, *more.items())
        if key not in made:
            made[key] = tiny.save(root / str(len(made)), family, layers=layers, outputs=outputs, **more)
        return made[key]

    return folder


def scores(ranker, frame=FRAME) -> np.ndarray:
    return ranker(frame).sort_values(["qid", "docno"])["score"].to_numpy()


def assert_same(make, frame=FRAME, **settings):
    """The scores of a ranker on both devices; returns those of the GPU.

    A ranker that is called with settings is a copy, so a ranker will do for a function that makes one.
    """
    want = scores(make(device="cpu", **settings), frame)
    sim.reset()
    found = scores(make(device="sim", precision="fp32", **settings), frame)
    assert sim.launches
    np.testing.assert_allclose(found, want, atol=1e-5, rtol=0)
    return found


@both(*tiny.FAMILIES, quick=[*((name, True) for name in tiny.FAMILIES), ("bert", False)])
def test_families(folders, varlen, name):
    assert_same(CrossEncoder.from_pretrained(folders(name, 4, 2)))
    assert_same(Cascade.from_pretrained(folders(name)), alpha=0.4)


@pytest.mark.parametrize("family", ["bert", pytest.param("modernbert", marks=pytest.mark.slow)])
@both(*POOLINGS, quick=[(name, True) for name in ("cls", "mean_cls")])
def test_poolings(folders, varlen, family, name):
    assert_same(Cascade.from_pretrained(folders(family), layers=(1, 2, 4), pooling=name), alpha=0.5)


SETTINGS = [{"counts": (4, 2)}, {"passages": "max", "max_length": 24}, {"alpha": 0}, {"token_budget": 50}]


@pytest.fixture(scope="module")
def cascade(folders):
    return Cascade.from_pretrained(folders(), layers=(1, 2, 4))


@pytest.mark.parametrize(
    "settings", [*SETTINGS[:2], *(pytest.param(one, marks=pytest.mark.slow) for one in SETTINGS[2:])], ids=str
)
def test_settings(cascade, settings):
    assert_same(cascade, **settings)


def test_compiled_stages(cascade):
    def fused(**more):
        ranker = cascade(**more)
        return (ranker[1] % 0.6 >> ranker[2] % 3 >> ranker[4]).compile()

    assert_same(fused)


@pytest.mark.slow
def test_other_stages(cascade):
    assert_same(lambda **more: cascade(**more)[1] % 0.6 >> cascade(**more)[2] % 3 >> cascade(**more)[4])

    def unfused(**more):
        stages = [cascade(**more)[1], cascade(**more)[4]]
        return lambda frame: stages[1](stages[0](frame))

    assert_same(unfused)


def test_deadlines_and_traces(cascade):
    assert_same(cascade, deadline_ms=60_000)
    trace = cascade(device="sim", precision="fp32").trace(FRAME)
    np.testing.assert_allclose(trace.scores, cascade(device="cpu").trace(FRAME).scores, atol=1e-5, rtol=0)


def test_sequential_rerankers(folders):
    def make(**more):
        return SequentialReranker.from_pretrained(folders(), layers=(1, 2), models=more, alpha=0.4)

    assert_same(make)


@pytest.mark.parametrize("varlen", [True, False], indirect=True)
def test_long_inputs_and_windows(folders, varlen):
    """Windows of 8 tokens in inputs of up to 120, and inputs as short as the window."""
    texts = FRAME["text"].where(np.arange(len(FRAME)) % 3 == 0, FRAME["text"] * 4)
    frame = FRAME.assign(text=texts)
    assert_same(CrossEncoder.from_pretrained(folders("modernbert", 4, 2)), frame)


def test_blocks_for_devices_without_the_operators(folders, monkeypatch):
    """As on MPS; inputs of one length have no mask."""
    monkeypatch.setattr(torch_executor, "BLOCKS", ("sim",))
    masks, attention = [], torch.nn.functional.scaled_dot_product_attention

    def seen(*given, attn_mask=None, **more):
        masks.append(attn_mask is not None)
        return attention(*given, attn_mask=attn_mask, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    for frame, expected in ((FRAME, {True, False}), (FRAME.assign(text="the ship"), {False})):
        masks.clear()
        ranker = CrossEncoder.from_pretrained(folders("bert", 4, 2), device="sim", precision="fp32")
        frame = frame[frame["qid"] == "q0"]
        found = scores(ranker, frame)
        assert set(masks) <= expected
        np.testing.assert_allclose(found, scores(ranker(device="cpu"), frame), atol=1e-5, rtol=0)


def test_steps_are_watched_and_products_may_be_left_out(folders, monkeypatch):
    """As benchmarks count large models: the same steps, with other scores."""
    ranker, found = Cascade.from_pretrained(folders(), layers=(1, 2, 4), device="sim", precision="fp32", alpha=0.5), []
    scores(ranker)
    for skipped in (set(), {"aten::linear", "aten::scaled_dot_product_attention"}):
        steps = []
        monkeypatch.setattr(sim, "skipped", skipped)
        monkeypatch.setattr(sim, "watch", lambda kind, name, given, returned, steps=steps: steps.append((kind, name)))
        sim.reset()
        found.append(scores(ranker))
        for kind, number in sim.counts().items():
            assert number == sum(one == kind for one, _ in steps)
        found.append(steps)
    assert found[1] == found[3] and ("launches", "aten::linear") in found[1]
    assert np.isfinite(found[2]).all() and np.abs(found[2] - found[0]).max() > 0.01


def test_a_mixture_raises():
    with pytest.raises(RuntimeError, match=r"^Expected all tensors to be on the same device"):
        torch.ones(2, device="sim") + torch.ones(2)


@pytest.fixture(scope="module")
def hundred():
    """An encoder of 12 layers with five heads, and 100 inputs of about 40 tokens."""
    config = tiny.config("bert", 12, tiny.wordpiece(True))
    torch.manual_seed(0)
    encoder = transformers.AutoModel.from_config(config)
    pairs = spans.inputs(np.random.default_rng(0).integers(12, 69, 100))
    heads = spans.heads("mean_nocls", (4, 6, 8, 10, 12))
    return encoder, heads, pairs, np.zeros(100, dtype=int)


@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16", marks=pytest.mark.slow)])
def test_launches_waits_and_uploads_of_a_query(hundred, monkeypatch, precision):
    """20 launches a layer, a wait for each head; an upload of ids and types, and where each stage's tokens are."""
    monkeypatch.setattr(torch_executor, "has_varlen", lambda *given: True)
    encoder, heads, pairs, groups = hundred
    made = torch_executor.TorchExecutor(encoder, heads, torch.device("sim"), precision)
    want = engine.run(torch_executor.TorchExecutor(encoder, heads, spans.CPU), pairs)
    sim.reset()
    found = engine.run(made, pairs, groups, lambda head, rows, scores: rows)
    np.testing.assert_allclose(found, want, atol=1e-5 if precision == "fp32" else 0.1, rtol=0)
    counts = sim.counts()
    assert counts["launches"] <= 20 * 12 and counts["syncs"] <= 5 and counts["uploads"] <= 11, sim.by_line()
    sim.reset()
    engine.run(made, pairs)
    assert sim.counts()["syncs"] == 1 and sim.counts()["uploads"] <= 3, sim.by_line()


@pytest.mark.parametrize("varlen", [True, False], indirect=True)
def test_launches_of_modernbert(folders, varlen):
    made = CrossEncoder.from_pretrained(folders("modernbert", 4, 2), device="sim", precision="fp16")
    frame = lists.candidates([40])
    scores(made, frame)
    sim.reset()
    scores(made, frame)
    assert sim.counts()["launches"] <= (20 if varlen else 30) * 4 + 20, sim.by_line()
    assert sim.counts()["syncs"] == 1 and sim.counts()["uploads"] <= 2, sim.by_line()


def test_smaller_chunks_where_memory_is_short(hundred, monkeypatch):
    """A chunk that does not fit is divided, and later runs begin with the smaller one."""
    encoder, heads, pairs, groups = hundred
    made = torch_executor.TorchExecutor(encoder, heads, torch.device("sim"), "fp32")
    whole, sizes, run = engine.run(made, pairs), [], made.run

    def short(spans, pairs, rows, states):
        sizes.append(int(pairs.lengths[rows].sum()))
        if sizes[-1] > 1_500:
            raise torch.cuda.OutOfMemoryError("no memory")
        return run(spans, pairs, rows, states)

    made.run, done = short, []
    found = engine.run(made, pairs, groups, lambda head, rows, scores: rows, progress=done.append)
    np.testing.assert_allclose(found, whole, atol=1e-5, rtol=0)
    total = int(pairs.lengths.sum())
    assert sizes[0] == total and sizes[1] < total and max(sizes[3:]) <= 1_500 and sum(done) == 100
    sizes.clear()
    engine.run(made, pairs)
    assert max(sizes) <= 1_500
    with pytest.raises(torch.cuda.OutOfMemoryError):
        made.run = lambda *given: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError("no memory"))
        engine.run(made, pairs)


def test_waves_by_free_memory(hundred, monkeypatch):
    encoder, heads, pairs, _ = hundred
    monkeypatch.setattr(engine, "free_memory", lambda device: 4 * 32 * 4 * 1_000)
    waves, make = [], engine.WaveStates.__init__

    def noted(self, pairs, rows, *more):
        waves.append(rows)
        make(self, pairs, rows, *more)

    monkeypatch.setattr(engine.WaveStates, "__init__", noted)
    made = torch_executor.TorchExecutor(encoder, heads, torch.device("sim"), "fp32")
    engine.run(made, pairs, np.arange(100) // 5, lambda head, rows, scores: rows)
    tokens = [int(pairs.lengths[rows].sum()) for rows in waves]
    assert len(tokens) > 3 and max(tokens) <= 1_000


def test_auto_is_half_precision_there(folders):
    auto = CrossEncoder.from_pretrained(folders("bert", 4, 2), device="sim")
    half, exact = auto(precision="fp16"), auto(precision="fp32")
    assert auto.precision == "auto" and scoring_precision("auto", device_of("sim")) == "fp16"
    assert auto.fingerprint() == half.fingerprint() != exact.fingerprint()
    assert 0 < np.abs(scores(auto) - scores(exact)).max() < 0.05
    assert (scores(auto) == scores(half)).all()


def test_bf16_without_hardware_warns(folders):
    ranker = CrossEncoder.from_pretrained(folders("bert", 4, 2), device="sim", precision="bf16")
    message = "^precision='bf16' is emulated on this sim device and slow; use precision='auto'$"
    with pytest.warns(UserWarning, match=message):
        ranker(FRAME)


def test_numbers_too_large_for_fp16(folders):
    """States above 65,504 are infinite in fp16 and NaN after the next norm; in fp32 they are fine."""
    ranker = CrossEncoder.from_pretrained(folders("bert", 4, 2, seed=3), device="sim")
    with torch.no_grad():
        ranker.model.loaded.module.base_model.encoder.layer[1].output.dense.weight.mul_(1e6)
    assert np.isfinite(scores(ranker(precision="fp32"))).all()
    message = (
        "^16 of 16 scores after layer 4 are NaN or infinite; fp16 holds no number above 65,504, and some models need "
        "larger ones: use precision='bf16' or 'fp32'; if that changes nothing, the model's weights are broken "
        r"\(a diverged training\?\)$"
    )
    with pytest.raises(ValueError, match=message):
        ranker(FRAME)
