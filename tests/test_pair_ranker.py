"""What rankers of pairs share: tokens that are made while the candidates before are computed."""

import re
import threading

import pytest
import torch
from pandas.testing import assert_frame_equal

from pyterrier_cascade import Cascade, CrossEncoder
from pyterrier_cascade import pair_ranker as shared
from pyterrier_cascade.cascade import ranker as cascades
from pyterrier_cascade.crossencoder import ranker as crossencoders
from pyterrier_cascade.pair_ranker import PairRanker
from tests import tiny
from tests.lists import candidates

SIZES = [9, 4, 12, 1, 7]


@pytest.fixture(scope="module")
def rankers(tmp_path_factory) -> dict[str, PairRanker]:
    folder = tmp_path_factory.mktemp("rankers")
    cross = CrossEncoder.from_pretrained(tiny.save(folder / "cross"))
    cascade = Cascade.from_cross_encoder(tiny.save(folder / "source", layers=4), layers=(2, 4), alpha=0.4)
    stages = cascade[2] % 0.5 >> cascade[4]
    return {
        "cross-encoder": cross,
        "cascade": cascade,
        "passages": cross(passages="max", max_length=16),
        "stages": stages,
    }


@pytest.fixture
def tokenised_by(monkeypatch) -> list[threading.Thread]:
    """Lets rankers work ahead as on a GPU, in small parts; the threads that tokenise."""
    seen, tokenize = [], shared.tokenize
    monkeypatch.setattr(PairRanker, "_works_ahead", True)
    for module in (cascades, crossencoders):
        monkeypatch.setattr(module, "ROWS_AHEAD", 8)
    monkeypatch.setattr(
        shared, "tokenize", lambda *args, **how: seen.append(threading.current_thread()) or tokenize(*args, **how)
    )
    return seen


@pytest.mark.filterwarnings("ignore:.*are fresh")
@pytest.mark.parametrize("name", ["cross-encoder", "cascade", "passages", "stages"])
def test_results_are_the_same_where_tokens_are_made_ahead(rankers, name, monkeypatch, request):
    frame = candidates(SIZES)
    expected = rankers[name](frame)
    threads = request.getfixturevalue("tokenised_by")
    assert_frame_equal(rankers[name](frame), expected, atol=1e-6)
    assert len(threads) > 2 and threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_warnings_and_errors_are_those_of_the_callers_line(rankers, tokenised_by, monkeypatch):
    frame = candidates(SIZES)
    frame.loc[frame["qid"] == "q2", "query"] = "who " * 60
    with pytest.warns(UserWarning, match="1 of 5 queries have more than") as seen:
        rankers["cross-encoder"](max_length=32)(frame)
    assert [one.filename for one in seen] == [__file__]

    def broken(*args, **how):
        raise ValueError("no such words")

    monkeypatch.setattr(shared, "tokenize", broken)
    with pytest.raises(ValueError, match=re.escape("no such words")):
        rankers["cross-encoder"](frame)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize(("device", "engine", "expected"), [("cpu", "torch", False), ("cuda:0", "torch", True)])
def test_a_cpu_has_no_core_to_spare(monkeypatch, device, engine, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert CrossEncoder("nowhere", device=device, engine=engine)._works_ahead is expected


@pytest.mark.parametrize("ranker", [CrossEncoder, Cascade])
def test_only_torch_compiles(ranker):
    assert repr(ranker("x", torch_compile=True)) == f"{ranker.__name__}.from_pretrained('x', torch_compile=True)"
    with pytest.raises(ValueError, match=r"^torch_compile='yes' with engine='torch' and precision='auto': give"):
        ranker("x", torch_compile="yes")
