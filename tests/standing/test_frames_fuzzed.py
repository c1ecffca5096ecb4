"""Random frames through every ranker: what holds for any frame that is valid."""

import pickle
from dataclasses import fields

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CrossEncoder,
    FractionCutoff,
    HierarchicalRanker,
    MarginCutoff,
    SequentialReranker,
    registry,
)
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore")

FEW, MANY = 20, 400
WORDS = ["the", "ship", "town", "who", "what", "when", "founded", "launched", "is", "of", "in", "was", "1802"]
STRANGE = [
    None,
    np.nan,
    "",
    " ",
    "\0",
    "\ud800 lone",
    "e\u0301 \U0001f600",
    "漢字 ship",
    "[SEP]",
    "x" * 400,
    "was it " * 300,
]
CLOSE = 1e-4
"""The most that rounding changes a score."""


@pytest.fixture(scope="module")
def rankers(tmp_path_factory) -> dict:
    """A ranker for each way of ranking; those with heads drop candidates between them."""
    folder = tmp_path_factory.mktemp("fuzzed")
    encoder = tiny.save(folder / "encoder", layers=3, outputs=None)
    cascade = Cascade.from_pretrained(encoder, layers=(1, 2, 3))
    for head in cascade.model.loaded.module.heads:
        for linear in head[::3]:
            linear.weight.data *= 20
    cascade.save_pretrained(folder / "cascade")
    dcbert = DCBERT.from_pretrained(encoder)
    texts = [(str(docno), text_of(docno)) for docno in range(9)]
    documents = [{"docno": docno, "text": text if isinstance(text, str) else ""} for docno, text in texts]
    cache = dcbert.encode(documents, folder / "cache")
    sequential = SequentialReranker.from_pretrained(encoder, layers=(1, 3), alpha=0.5)
    return {
        "CrossEncoder": CrossEncoder.from_pretrained(tiny.save(folder / "classifier"), max_length=64),
        "passages": CrossEncoder.from_pretrained(str(folder / "classifier"), max_length=64, passages="max"),
        "SequentialReranker": sequential,
        "Cascade": cascade(alpha=0.4),
        "counts": cascade(counts=(4, 2), plan=(1, 2, 3)),
        "margin": cascade(margin=0.5, plan=(1, 3)),
        "drop": cascade(alpha=0.4, exited="drop"),
        "DCBERT": dcbert,
        "late": dcbert(interaction="late"),
        "CachedRanker": cache.reranker(missing="encode"),
        "HierarchicalRanker": HierarchicalRanker(),
    }


def text_of(number: int):
    """The text of a document, the same wherever it is a candidate; some are strange, and some are equal."""
    rng = np.random.default_rng(number % 31)
    return STRANGE[number] if number < len(STRANGE) else " ".join(rng.choice(WORDS, int(rng.integers(1, 40))))


def frame_of(seed: int) -> pd.DataFrame:
    """A valid frame: rows in any order, types and columns as retrievers and users give them."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(int(rng.integers(1, 6))):
        query = rng.choice([" ".join(rng.choice(WORDS, 3)), "", "who " * 80, "\ud800?"], p=[0.7, 0.1, 0.1, 0.1])
        documents = rng.permutation(40)[: int(rng.integers(1, 13))]
        scores = np.sort(rng.choice([0.0, 1.0, 2.5, 7.0], len(documents)))[::-1]
        rows += [
            (number, str(query), int(docno), text_of(int(docno)), score, rank)
            for rank, (docno, score) in enumerate(zip(documents, scores, strict=True))
        ]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])
    for name in ("query", "text"):
        # pandas' own strings cannot hold half a surrogate pair.
        frame[name] = pd.Series([row[frame.columns.get_loc(name)] for row in rows], dtype=object)
        if rng.random() < 0.2:
            frame[name] = frame[name].astype("category")
    frame["docno"] = frame["docno"].astype(str)
    if rng.random() < 0.5:
        frame["qid"] = frame["qid"].map("q{}".format)
    frame = frame.drop(columns=[["score", "rank"], ["rank"], ["score"], []][int(rng.integers(4))])
    if "rank" in frame and rng.random() < 0.2:
        frame["rank"] = frame["rank"].astype(str)
    if rng.random() < 0.3:
        frame["note"] = rng.choice(["a", None], len(frame))
    frame["q_extra"] = frame["qid"].astype(str) + "!"
    frame = frame.sample(frac=1, random_state=seed)
    return frame.set_axis(rng.integers(0, 3, len(frame)))


def by_candidate(results: pd.DataFrame, *names: str) -> pd.DataFrame:
    return results.set_index(["qid", "docno"])[list(names)].sort_index()


def earlier(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in their earlier order: by rank, else by score, then by docno (CT-2, X-4)."""
    keys = {"docno": frame["docno"]}
    if "rank" in frame:
        keys = {"rank": frame["rank"].astype(float), **keys}
    elif "score" in frame:
        keys = {"score": -frame["score"], **keys}
    return frame.iloc[np.lexsort([values.to_numpy() for values in reversed(keys.values())])]


def check_rows(frame: pd.DataFrame, out: pd.DataFrame, whole: bool) -> None:
    """All candidates and columns are kept, blocks stand in the order of the input, ranks and scores agree."""
    assert out.columns.is_unique and set(frame.columns) <= set(out.columns)
    assert out.index.equals(pd.RangeIndex(len(out)))
    kept = frame.set_index(["qid", "docno"])
    assert len(out) == len(frame) if whole else 0 < len(out) <= len(frame)
    same = [name for name in frame.columns if name not in ("qid", "docno", "score", "rank")]
    found = out.set_index(["qid", "docno"])
    pd.testing.assert_frame_equal(found[same], kept.loc[found.index, same])
    assert out["qid"].drop_duplicates().tolist() == frame["qid"].drop_duplicates().tolist()
    for _, block in out.groupby("qid", sort=False):
        assert block["rank"].tolist() == list(range(len(block)))
        assert np.isfinite(block["score"]).all() and block["score"].is_monotonic_decreasing
        assert (np.diff(block.index) == 1).all()


def check_ties(frame: pd.DataFrame, out: pd.DataFrame) -> None:
    """Candidates with equal scores keep their earlier order."""
    place = {key: number for number, key in enumerate(zip(*(earlier(frame)[n] for n in ("qid", "docno")), strict=True))}
    for _, tied in out.groupby(["qid", "score"], sort=False):
        places = [place[key] for key in zip(tied["qid"], tied["docno"], strict=True)]
        assert places == sorted(places)


def check_same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """Equal results up to rounding: scores are close, and only candidates with close scores change places."""
    ours, theirs = (by_candidate(one, "score", "rank") for one in (found, wanted))
    assert ours.index.equals(theirs.index)
    np.testing.assert_allclose(ours["score"], theirs["score"], atol=CLOSE, rtol=1e-5)
    moved = (ours["rank"] != theirs["rank"]).to_numpy()
    for qid, docno in ours.index[moved]:
        block = wanted[wanted["qid"] == qid].sort_values("rank")["score"].to_numpy()
        before, after = (one.loc[(qid, docno), "rank"] for one in (ours, theirs))
        assert abs(block[before] - block[after]) < CLOSE, (qid, docno)


def check(ranker, frame: pd.DataFrame, seed: int) -> None:
    rng, copy = np.random.default_rng(seed), pickle.loads(pickle.dumps(frame))
    drops = isinstance(ranker, EarlyExitRanker) and ranker.policy.exited == "drop"
    out = ranker(frame)
    pd.testing.assert_frame_equal(frame, copy)
    check_rows(frame, out, whole=not drops)
    check_ties(frame, out)
    check_same(ranker(frame.iloc[rng.permutation(len(frame))]), out)
    qid = rng.choice(frame["qid"].unique())
    check_same(ranker(frame[frame["qid"] == qid]), out[out["qid"] == qid])
    empty = ranker(frame.iloc[:0])
    assert empty.columns.tolist() == out.columns.tolist() and len(empty) == 0


seeds = pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(FEW)), pytest.param(range(FEW, FEW + MANY), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
NAMES = ["CrossEncoder", "SequentialReranker", "Cascade", "DCBERT", "HierarchicalRanker"]
WAYS = [*NAMES, "passages", "counts", "margin", "drop", "late", "CachedRanker"]


def test_every_ranker_is_here(rankers):
    assert sorted(NAMES) == sorted(one.name for one in registry.RERANKERS)
    assert [type(rankers[name]).__name__ for name in NAMES] == NAMES
    assert sorted(rankers) == sorted(WAYS)


@seeds
@pytest.mark.parametrize("name", WAYS)
def test_what_holds_for_any_frame(rankers, name, seeds):
    for seed in seeds:
        check(rankers[name], frame_of(seed), seed)


@seeds
def test_stages_are_the_same_compiled_and_not(rankers, seeds):
    cascade = rankers["Cascade"]
    for seed in seeds:
        rng, frame = np.random.default_rng(seed), frame_of(seed)
        if "rank" not in frame:
            frame = pt.model.add_ranks(frame) if "score" in frame else frame.assign(rank=range(len(frame)))
        cuts = [pt.RankCutoff(int(rng.integers(1, 9))), FractionCutoff(0.6), MarginCutoff(0.5)]
        pipeline = pt.Transformer.identity()
        for layer in sorted(rng.choice([1, 2, 3], int(rng.integers(1, 4)), replace=False).tolist()):
            pipeline = pipeline >> cascade[layer] >> cuts[int(rng.integers(3))]
        check_same(pipeline.compile()(frame), pipeline(frame))


@seeds
@pytest.mark.parametrize("name", ["Cascade", "counts", "margin", "drop", "SequentialReranker"])
def test_a_trace_gives_what_the_ranker_gives(rankers, name, seeds):
    ranker = rankers[name]
    for seed in seeds:
        frame = frame_of(seed).assign(qid=lambda frame: frame["qid"].astype(str))
        check_same(ranker.trace(frame).results(**settings_of(ranker)), ranker(frame))


def settings_of(ranker) -> dict:
    given = {field.name: getattr(ranker.policy, field.name) for field in fields(ranker.policy)}
    return {name: value for name, value in given.items() if value is not None}
