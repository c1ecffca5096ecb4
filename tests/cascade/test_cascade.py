"""The cascade as a transformer (CT-24 to CT-35)."""

import inspect
import itertools
import pickle
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CascadeTraining,
    CrossEncoder,
    HierarchicalRanker,
    Training,
)
from pyterrier_cascade.early_exit.ranker import HeadScores
from tests.drawn_heads import DrawnHeads
from tests.lists import candidates

LAYERS = (2, 3, 4, 5, 6)


def _cascade() -> Cascade:
    return Cascade.from_pretrained("nowhere/to-be-found", layers=(4, 8, 12), alpha=(0.4, 0.2))


TestContract = transformer_test_class(_cascade)


def by_hand(cascade: Cascade, frame: pd.DataFrame, kept: list) -> pd.DataFrame:
    """What a cascade must return, a question at a time, from heads that each score all candidates on their own."""
    heads = {layer: cascade(plan=(layer,))(frame).set_index(["qid", "docno"])["score"] for layer in LAYERS}
    rows = []
    for qid, block in frame.groupby("qid", sort=False):
        alive = list(block.sort_values("rank")["docno"])
        tiers = []
        for layer, keep in zip(LAYERS, [*kept, None], strict=True):
            alive.sort(key=lambda docno, layer=layer: -heads[layer][qid, docno])
            n = len(alive) if keep is None else keep(len(alive))
            tiers.insert(0, [(docno, layer) for docno in alive[n:]] if keep else [(docno, layer) for docno in alive])
            alive = alive[:n]
        rows += [(qid, docno, layer, rank) for rank, (docno, layer) in enumerate(itertools.chain(*tiers))]
    return pd.DataFrame(rows, columns=["qid", "docno", "exit_layer", "rank"])


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"alpha": 0.4}, [lambda n: n - int(0.4 * n + 1e-9)] * 4),
        ({"alpha": (0.5, 0, 0.9, 0.25)}, [lambda n, a=a: n - int(a * n + 1e-9) for a in (0.5, 0, 0.9, 0.25)]),
        ({"alpha": 0.3, "rounding": "nearest"}, [lambda n: max(1, int(0.7 * n + 0.5 + 1e-9))] * 4),
        ({"counts": (20, 7, 7, 2)}, [lambda n, k=k: min(n, k) for k in (20, 7, 7, 2)]),
        ({}, [lambda n: n] * 4),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_the_result_by_hand(cascade, settings, kept):
    frame = candidates([23, 1, 9])
    before = frame.copy()
    out = cascade(**settings)(frame)
    assert_frame_equal(frame, before)
    assert_frame_equal(out[["qid", "docno", "exit_layer", "rank"]], by_hand(cascade, frame, kept))
    for _, block in out.groupby("qid"):
        assert (np.diff(block["score"].to_numpy(np.float32)) < 0).all()
    texts = frame.set_index("docno")["text"]
    assert out["text"].tolist() == texts[out["docno"]].tolist()
    dropped = cascade(**settings, exited="drop")(frame)
    survivors = out[out["exit_layer"] == 6].reset_index(drop=True)
    assert_frame_equal(dropped, survivors)


def test_the_last_heads_scores_are_its_own(cascade):
    frame = candidates([12, 5])
    full = cascade(frame).set_index("docno")["score"]
    out = cascade(alpha=0.5)(frame)
    survivors = out[out["exit_layer"] == 6]
    np.testing.assert_allclose(survivors["score"], full[survivors["docno"]], atol=2e-6)


def test_a_plan_asks_the_heads_that_it_names(cascade):
    frame = candidates([16])
    out = cascade(plan=(2, 6), alpha=0.75)(frame)
    assert out["exit_layer"].tolist() == [6] * 4 + [2] * 12
    assert cascade(plan=(3,))(frame)["exit_layer"].unique().tolist() == [3]
    early = cascade(plan=(2, 4), counts=[5])(frame)
    assert early["exit_layer"].tolist() == [4] * 5 + [2] * 11
    assert early["q_cost"].unique().tolist() == [5 * 4 + 11 * 2]


def test_batches_of_a_question(cascade):
    """CT-26: each batch loses its own share; the result ranks the whole question."""
    frame = candidates([10])
    out = cascade(plan=(2, 6), alpha=0.5, batch_size=4)(frame)
    assert (out["exit_layer"] == 6).sum() == 2 + 2 + 1
    first = frame[frame["rank"] < 4]
    alone = cascade(plan=(2, 6), alpha=0.5)(first)
    survivors = set(out.loc[out["exit_layer"] == 6, "docno"])
    assert set(alone.loc[alone["exit_layer"] == 6, "docno"]) == survivors & set(first["docno"])


def test_ties_keep_the_earlier_order(cascade):
    """CT-2: the same text five times."""
    frame = candidates([5, 4], ties=True).assign(text="the ship")
    out = cascade(alpha=0.4)(frame)
    ordered = frame.sort_values(["qid", "rank"])["docno"].tolist()
    assert out["docno"].tolist() in (ordered, ordered[5:] + ordered[:5])


def test_an_empty_frame_gives_the_same_columns_and_loads_nothing(cascade):
    frame = candidates([3])
    full, empty = cascade(frame), _cascade()(frame.iloc[:0])
    assert list(empty.columns) == list(full.columns) and len(empty) == 0
    new = ["exit_layer", "q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full", "score", "rank"]
    assert empty[new].dtypes.tolist() == full[new].dtypes.tolist()


def test_repr_can_be_typed_back_in():
    ranker = _cascade()(precision="bf16", counts=(5, 2), alpha=0, training=CascadeTraining(heads="sampled", epochs=8))
    expected = (
        "Cascade.from_pretrained('nowhere/to-be-found', layers=(4, 8, 12), counts=(5, 2), precision='bf16', "
        "training=CascadeTraining(epochs=8, heads='sampled'))"
    )
    assert repr(ranker) == expected
    assert eval(repr(ranker)) == ranker and hash(eval(repr(ranker))) == hash(ranker) != hash(_cascade())


def test_equal_numbers_of_other_types_are_equal_rankers():
    for one, two in ((0.4, np.float64(0.4)), (0, 0.0), ((0, 0.5), [0.0, np.float64(0.5)])):
        assert _cascade()(alpha=one) == _cascade()(alpha=two) and hash(_cascade()(alpha=one)) == hash(
            _cascade()(alpha=two)
        )


def test_layers_given_as_numpy_numbers_can_be_saved(encoder, tmp_path):
    Cascade.from_pretrained(encoder, layers=np.array([2, 6])).save_pretrained(str(tmp_path / "saved"))
    assert Cascade.from_pretrained(str(tmp_path / "saved")).head_layers == (2, 6)


def test_pickles_are_small_and_score_alike(cascade):
    frame = candidates([8])
    ranker = cascade(alpha=0.5)
    out, data = ranker(frame), pickle.dumps(ranker)
    assert len(data) < 2_000 and pickle.loads(data) == ranker
    assert_frame_equal(pickle.loads(data)(frame), out)


def test_alpha_is_live(cascade):
    frame, ranker = candidates([10]), cascade(alpha=0)
    ranker.set_parameter("alpha", 0.5)
    assert ranker(frame)["exit_layer"].value_counts().to_dict() == {2: 5, 3: 2, 4: 1, 5: 1, 6: 1}
    ranker.set_parameter("alpha", [0, 0, 0, 0.9])
    assert ranker(frame)["exit_layer"].value_counts().to_dict() == {5: 9, 6: 1}
    with pytest.raises(ValueError, match=re.escape("alpha=1.0 is not a fraction to drop")):
        ranker.set_parameter("alpha", 1.0)
    assert ranker.alpha == (0, 0, 0, 0.9)


def test_the_warning_of_fresh_heads_points_at_the_users_line(encoder):
    pipeline = pt.Transformer.from_df(candidates([3])) >> Cascade.from_pretrained(encoder)
    topics = candidates([3])[["qid", "query"]].drop_duplicates()
    with pytest.warns(UserWarning, match="before its scores mean anything") as seen:
        line = inspect.currentframe().f_lineno + 1
        pipeline(topics)
    assert [(Path(one.filename), one.lineno) for one in seen] == [(Path(__file__), line)]


def test_rows_of_experiments_are_short(saved):
    """A repr can be typed back in; the name of a row has no path and no training settings."""
    trained = Cascade.from_pretrained(saved, alpha=0.4, training=CascadeTraining(epochs=8), verbose=True)
    assert str(trained) == "Cascade('saved', alpha=0.4)" and str(trained[4]) == "Cascade('saved', alpha=0.4)[4]"
    assert saved in repr(trained) and eval(repr(trained)) == trained
    assert str(pt.RankCutoff(5) >> trained) == "(RankCutoff(5) >> Cascade('saved', alpha=0.4))"


@pytest.mark.parametrize("call", [
    lambda: Cascade("x", aplha=0.4), lambda: Cascade.from_pretrained("x", aplha=0.4), lambda: Cascade("x")(aplha=0.4),
])  # fmt: skip
def test_a_misspelt_setting_names_the_nearest(call):
    with pytest.raises(TypeError, match=re.escape("Cascade has no setting 'aplha' (did you mean 'alpha'?); its sett")):
        call()


def test_a_misspelt_setting_of_the_training_names_the_nearest():
    with pytest.raises(TypeError, match=re.escape("CascadeTraining has no setting 'epoch' (did you mean 'epochs'?)")):
        Cascade("x").with_training(epoch=3)


@pytest.mark.parametrize("cls", [Cascade, CrossEncoder, DCBERT, HierarchicalRanker])
@pytest.mark.parametrize("by", ["constructor", "from_pretrained"])
def test_an_object_of_another_library_is_no_model(cls, by):
    with pytest.raises(TypeError, match=r"a folder or a Hub name, not an object of collections\.OrderedDict; save"):
        cls.from_pretrained(OrderedDict()) if by == "from_pretrained" else cls(model=OrderedDict())


def test_fresh_heads_are_said(encoder):
    expected = re.escape(f"the heads of {encoder!r} at layers (2, 3, 4, 5, 6) are fresh: train it with fit() before")
    with pytest.warns(UserWarning, match=expected):
        Cascade.from_pretrained(encoder)(candidates([3]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1}, "alpha=1 is not a fraction to drop; give one from 0 up to, but not including, 1"),
        ({"alpha": -0.1}, "alpha=-0.1 is not a fraction to drop"),
        ({"alpha": (0.3, 1.2)}, "alpha=1.2 is not a fraction to drop"),
        ({"alpha": "0.4"}, "alpha='0.4' is not a fraction to drop"),
        ({"alpha": None}, "alpha=None is not a fraction to drop"),
        ({"alpha": np.array(0.3)}, "alpha=array(0.3) is not a fraction to drop"),
        ({"counts": 5}, "counts=5: give whole numbers, one for each head but the last"),
        ({"counts": (True, 2)}, "counts=True: give whole numbers of candidates to keep, 1 or more"),
        ({"plan": 4}, "plan=4: give layers in ascending order, each once"),
        ({"plan": (None, 4)}, "plan=(None, 4): give layers in ascending order, each once"),
        ({"plan": (2.0, 4)}, "plan=(2.0, 4): give layers in ascending order, each once"),
        ({"batch_size": 2.5}, "batch_size=2.5: give 1 or more, or None for all of a query's candidates"),
        ({"token_budget": 0}, "token_budget=0: give a whole number of tokens, 1 or more, or None"),
        ({"token_budget": "many"}, "token_budget='many': give a whole number of tokens, 1 or more, or None"),
        ({"layers": 5}, "heads at layers 5: give layers from 1 in ascending order, each once"),
        ({"layers": (2.0, 4.0)}, "heads at layers (2.0, 4.0): give layers from 1 in ascending order, each once"),
        ({"counts": (5, 0)}, "counts=0: give whole numbers of candidates to keep, 1 or more"),
        ({"counts": (0.5, 2)}, "counts=0.5: give whole numbers of candidates to keep, 1 or more"),
        ({"counts": (5, 2), "alpha": 0.3}, "alpha=0.3 and counts=(5, 2) exclude each other; give one of them"),
        ({"plan": (6, 4)}, "plan=(6, 4): give layers in ascending order, each once"),
        ({"plan": (4, 4)}, "plan=(4, 4): give layers in ascending order, each once"),
        ({"plan": ()}, "plan=(): give layers in ascending order, each once"),
        ({"batch_size": 0}, "batch_size=0: give 1 or more, or None for all of a query's candidates"),
        ({"rounding": "up"}, "rounding must be one of floor, nearest, not 'up'"),
        ({"exited": "keep"}, "exited must be one of below, drop, not 'keep'"),
        ({"precision": "int3"}, "precision must be one of auto, fp32, bf16, fp16, int8, mixed with engine='torch'"),
        ({"max_length": 4}, "max_length=4 leaves no room for a query and a document; use 8 or more"),
        ({"training": Training()}, "a cascade's training must be CascadeTraining(...), not Training()"),
        ({"layers": (4, 2)}, "heads at layers (4, 2): give layers from 1 in ascending order, each once"),
        ({"pooling": "sum"}, "pooling must be one of mean_nocls, mean, cls, mean_cls, not 'sum'"),
    ],
)
def test_bad_settings_are_refused_at_the_door(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Cascade.from_pretrained("anything", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan": (2, 7)}, "plan=(2, 7), but there are heads at layers (2, 3, 4, 5, 6) only"),
        (
            {"alpha": (0.3, 0.4)},
            "alpha=(0.3, 0.4) has 2 values, but 4 heads drop candidates, those at layers (2, 3, 4, 5)",
        ),
        ({"counts": [9]}, "counts=(9,) has 1 values, but 4 heads drop candidates"),
    ],
)
def test_settings_that_do_not_fit_the_model(cascade, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        cascade(**settings)(candidates([3]))


def test_broken_weights_give_no_result(cascade):
    cascade.model.loaded.module.heads[1][0].weight.data[0] = np.nan
    with pytest.raises(ValueError, match="7 of 7 scores after layer 3 are NaN or infinite; the model's weights are br"):
        cascade(counts=(7, 5, 3, 2))(candidates([9]))
    torch.nn.init.zeros_(cascade.model.loaded.module.heads[1][0].weight)


def test_another_engine_gives_the_same(cascade):
    pytest.importorskip("openvino")
    frame = candidates([20, 6])
    ours, theirs = cascade(alpha=0.4)(frame), cascade(alpha=0.4, engine="openvino")(frame)
    assert_frame_equal(ours, theirs, atol=1e-4, rtol=1e-5)


def test_many_questions_are_scored_in_parts(cascade, monkeypatch):
    frame = candidates([9, 30, 4, 11, 1, 8])
    out = cascade(alpha=0.4)(frame)
    monkeypatch.setattr("pyterrier_cascade.cascade.ranker.ROWS", 12)
    assert_frame_equal(cascade(alpha=0.4)(frame), out)


def test_explained(cascade):
    frame = candidates([10, 1])
    out, told = cascade(alpha=0.5)(frame), cascade(alpha=0.5).explain(frame)
    assert list(told.columns) == ["qid", "query", "docno", "layer", "score", "place", "kept"]
    assert told[told["qid"] == "q0"].groupby("layer").size().to_dict() == {2: 10, 3: 5, 4: 3, 5: 2, 6: 1}
    ends = told.groupby(["qid", "docno"])["layer"].max()
    for row in out.itertuples():
        assert ends[row.qid, row.docno] == row.exit_layer
    for (_, layer), at in told.groupby(["qid", "layer"]):
        assert at["place"].tolist() == list(range(len(at))) and at["score"].is_monotonic_decreasing
        assert at["kept"].tolist() == sorted(at["kept"], reverse=True)
        assert layer < 6 or at["kept"].all()
    assert len(cascade.explain(frame.iloc[:0])) == 0


def test_equal_scores_are_explained_in_the_order_of_the_head_before(monkeypatch):
    """CT-2."""
    scores = HeadScores(np.arange(3), np.array([[1, 5], [2, 5], [0, np.nan]]), np.ones(3))
    monkeypatch.setattr(DrawnHeads, "head_scores", lambda self, *args, **kwargs: scores)
    frame = pd.DataFrame({"qid": "1", "query": "q", "docno": ["a", "b", "c"], "text": "t"})
    told = DrawnHeads(plan=(4, 6), alpha=0.4).explain(frame)
    assert told["docno"].tolist() == ["b", "a", "c", "b", "a"] and told["place"].tolist() == [0, 1, 2, 0, 1]
    assert told["kept"].tolist() == [True, True, False, True, True]


def test_what_is_explained_keeps_the_types_of_its_columns(cascade):
    frame = candidates([4])
    frame["query"] = pd.Series(["\ud800 lone"] * 4, index=frame.index, dtype=object)
    told = cascade.explain(frame)
    names = ["qid", "query", "docno"]
    assert told[names].dtypes.tolist() == frame[names].dtypes.tolist() and told.index.is_unique
    assert told["query"].unique().tolist() == ["\ud800 lone"]


def test_saved_with_a_card(saved, tmp_path):
    cascade = Cascade.from_pretrained(saved)
    out = cascade(candidates([6]))
    cascade.save_pretrained(str(tmp_path / "again"), data="ships and towns")
    assert repr(cascade) == f"Cascade.from_pretrained({str(tmp_path / 'again')!r})"
    card = (tmp_path / "again" / "README.md").read_text()
    assert "one bert encoder of 6 layers x 32 with scoring heads after\nlayers 2, 3, 4, 5, 6" in card
    assert "ships and towns" in card and "pooling `mean_nocls`" in card
    assert_frame_equal(Cascade.from_pretrained(str(tmp_path / "again"))(candidates([6])), out)


def test_fresh_heads_were_trained_on_nothing(encoder, tmp_path):
    message = "data='ships' names the data of a training, but these weights have no record of one; train them first"
    with pytest.raises(ValueError, match=re.escape(message)):
        Cascade.from_pretrained(encoder).save_pretrained(str(tmp_path / "saved"), data="ships")
    assert not (tmp_path / "saved").exists()


def test_pushed_to_the_hub(saved, monkeypatch):
    import huggingface_hub

    seen = {}

    class Api:
        def __init__(self, token=None):
            seen["token"] = token

        def create_repo(self, repo_id, **options):
            seen.update(options, repo_id=repo_id)
            return f"https://hub.example/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            import os

            seen["files"] = sorted(os.listdir(folder_path))
            seen["card"] = (Path(folder_path) / "README.md").read_text()

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    cascade = Cascade.from_pretrained(saved)
    assert cascade.push_to_hub("me/cascade", data="x", private=True, token="t") == "https://hub.example/me/cascade"
    assert seen["private"] and seen["exist_ok"] and seen["token"] == "t" and seen["repo_id"] == "me/cascade"
    assert 'Cascade.from_pretrained("me/cascade")' in seen["card"]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(seen["files"])
    assert repr(cascade) == f"Cascade.from_pretrained({saved!r})"


def test_the_schematic_draws_without_a_network(cascade, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("drawing looked for documentation online")

    monkeypatch.setattr(pt.documentation, "url_for_class", refuse)
    assert "nowhere/to-be-found" in pt.schematic.draw(_cascade() >> _cascade()[4] % 0.5)


def test_a_cascade_is_no_sequence(cascade):
    with pytest.raises(TypeError, match="not iterable"):
        list(cascade)
