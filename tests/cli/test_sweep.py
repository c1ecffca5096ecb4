"""``sweep``: the tables of ``trace.sweep``."""

import pandas as pd
import pytest
from ir_measures import AP, P

from pyterrier_cascade import Cascade, RelativeTokenCost, Survival
from tests.cli.lists import CANDIDATES, table, tsv

QRELS = CANDIDATES[["qid", "docno", "label"]]
GIVEN = CANDIDATES.drop(columns=["label", "rank"])


@pytest.fixture(scope="module")
def trace(cascade):
    return Cascade.from_pretrained(cascade).trace(GIVEN)


def swept(done) -> list[dict]:
    assert done.code == 0, done.err
    return table(done.out)


def rows(frame: pd.DataFrame) -> list[dict]:
    shown = [",".join(map(str, one)) if isinstance(one, tuple) else one for one in frame["alpha"]]
    return frame.assign(alpha=shown).to_dict("records")


def argv(cascade, lists, *more):
    return ["sweep", cascade, "--candidates", lists.candidates, "--qrels", lists.qrels, "--quiet", *more]


def test_a_table(cli, cascade, lists, trace):
    more = ["--measures", "map P@1", "RelativeTokenCost", "Survival@3", "--alphas", "0", "0.4", "0.6,0.25"]
    measures = [AP, P @ 1, RelativeTokenCost, Survival @ 3]
    done = cli(*argv(cascade, lists, *more))
    expected = trace.sweep(QRELS, measures, [0.0, 0.4, (0.6, 0.25)]).frame
    assert swept(done) == rows(expected) and done.err == ""
    assert done.lines[0] == "alpha\tAP\tP@1\tRelativeTokenCost\tSurvival@3\tRelativeCost"
    # The printed alpha is a valid setting of rerank.
    assert (
        cli("rerank", cascade, "--candidates", lists.candidates, f"--with=alpha={swept(done)[-1]['alpha']}").code == 0
    )


def test_all_of_the_grid_and_what_is_chosen(cli, cascade, lists, trace):
    sweep = trace.sweep(QRELS, [AP])
    assert len(sweep) == 36
    assert swept(cli(*argv(cascade, lists))) == rows(sweep.frame)
    assert swept(cli(*argv(cascade, lists, "--pareto"))) == rows(sweep.pareto())
    for name, settings in (("--max-cost", {"max_cost": 0.8}), ("--max-loss", {"max_loss": 0.3})):
        (value,) = settings.values()
        (found,) = swept(cli(*argv(cascade, lists, name, value)))
        assert found == rows(sweep.best(**settings).to_frame().T)[0]


def test_settings_of_the_cascade(cli, cascade, lists, trace):
    settings = ["--with", "plan=1,3", "--with", "exited=drop", "--with", "rounding=nearest", "--alphas", "0.5"]
    expected = trace.sweep(QRELS, [AP], [0.5], plan=(1, 3), exited="drop", rounding="nearest").frame
    assert swept(cli(*argv(cascade, lists, *settings))) == rows(expected)


def test_a_trace_is_kept_and_needs_no_model(cli, refused, cascade, lists, tmp_path, monkeypatch):
    expected = swept(cli(*argv(cascade, lists, "--trace", tmp_path / "trace", "--alphas", "0.5")))
    monkeypatch.setattr(Cascade, "head_scores", None)
    assert swept(cli(*argv(cascade, lists, "--trace", tmp_path / "trace", "--alphas", "0.5"))) == expected
    assert swept(cli("sweep", tmp_path / "trace", "--qrels", lists.qrels, "--alphas", "0.5")) == expected
    planned = ["sweep", tmp_path / "trace", "--qrels", lists.qrels, "--alphas", "0.5", "--with", "plan=1,3"]
    assert swept(cli(*planned)) == swept(cli(*argv(cascade, lists, *planned[4:], "--trace", tmp_path / "trace")))
    assert "is a trace, which has its candidates" in refused(*argv(tmp_path / "trace", lists)[:-1])
    message = refused(*planned, "--with", "alpha=1")
    assert message == "--with has no 'alpha'; there are batch_size, exited, plan, rounding"


def test_only_the_given_questions_are_measured(cli, cascade, lists, trace, tmp_path):
    """Judgements of further questions, and further questions of a kept trace, are left out with a warning."""
    few = CANDIDATES[CANDIDATES["qid"].isin(CANDIDATES["qid"].unique()[:2])]
    given = few.drop(columns=["label", "rank"])
    expected = Cascade.from_pretrained(cascade).trace(given).sweep(few[["qid", "docno", "label"]], [AP], [0.4]).frame
    path = tsv(tmp_path / "few.tsv", given)
    for more in ([], ["--trace", tmp_path / "kept"]):
        if more:
            assert cli(*argv(cascade, lists, *more)).code == 0
        done = cli("sweep", cascade, "--candidates", path, "--qrels", lists.qrels, "--quiet", "--alphas", "0.4", *more)
        assert swept(done) == rows(expected)
        n = CANDIDATES["qid"].nunique()
        assert f"warning: {n - 2} of {n} judged questions have no candidates here and are not measured" in done.err


def test_progress(cli, cascade, lists):
    assert "Cascade: 100%" in cli(*argv(cascade, lists)[:-1], "--alphas", "0.5").err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--measures", "MAPP"], "there is no measure 'MAPP' (did you mean"),
        (["--measures", "Survival@x"], "there is no measure 'Survival@x'"),
        (["--measures", "AP P"], "the measure 'P' needs a cutoff; write, for example, 'P@10'"),
        (["--measures", "Survival"], "the measure 'Survival' needs a cutoff; write, for example, 'Survival@10'"),
        (["--alphas", "0.3,x"], "--alphas 0.3,x: give a number, or one for each head with commas between"),
        (["--alphas", "1.3"], "alpha=1.3 is not a fraction to drop"),
        (["--alphas", "0.1,0.2,0.3"], "alpha=(0.1, 0.2, 0.3) has 3 values, but 2 heads drop candidates"),
        (["--max-cost", "0.01"], "no setting costs 0.01 or less"),
        (["--max-cost", "0.5", "--pareto"], "argument --pareto: not allowed with argument --max-cost"),
        (["--with", "alpha=0.3"], "--with has no 'alpha'; there are"),
        (["--with", "roundin=nearest"], "--with has no 'roundin' (did you mean 'rounding'?); there are batch_size"),
    ],
)
def test_errors(refused, cascade, lists, given, message):
    assert refused(*argv(cascade, lists)[:-1], *given).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["{bert}", "--candidates", "{candidates}", "--qrels", "{qrels}"], "holds a CrossEncoder; only a cascade has"),
        (["{encoder}", "--candidates", "{candidates}", "--qrels", "{qrels}"], "holds an encoder; only a cascade has"),
        (["{cascade}", "--candidates", "{candidates}"], "no judgements; give --qrels, or a --dataset that has them"),
        (["{cascade}", "--qrels", "{qrels}"], "no candidates; give --run, --candidates, or a --dataset"),
    ],
)
def test_errors_of_what_is_given(refused, cascade, encoder, tiny_bert, lists, given, message):
    known = {**vars(lists), "bert": tiny_bert, "cascade": cascade, "encoder": encoder}
    assert message in refused("sweep", *(one.format(**known) for one in given))
