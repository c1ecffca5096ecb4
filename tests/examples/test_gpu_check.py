"""The notebook for people with a GPU is stored clean, runs to its end without one, and holds on the simulated GPU."""

import ast
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests import tiny
from tests.gpu import sim

PROJECT = Path(__file__).parents[2]
NOTEBOOK = PROJECT / "examples" / "gpu_check.ipynb"
# What the notebook finds on a machine with a GPU, and few candidates.
SIMULATED = """
import sys

sys.path.insert(0, {project!r})
from tests.gpu import sim

sim.register()
gpu, DEVICE, CHECKED, AT_ONCE, CANDIDATES = "simulated", "sim", 3, 3, 8
"""


def book() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)


def test_it_is_stored_clean():
    found = book()
    nbformat.validate(found)
    assert (found.nbformat, found.nbformat_minor) == (4, 5)
    assert set(found.metadata) == {"kernelspec", "language_info"} and found.metadata.language_info == {"name": "python"}
    for cell in found.cells:
        assert re.fullmatch(r"[a-z][a-z0-9-]+", cell.id) and cell.metadata in ({}, {"tags": ["parameters"]})
        if cell.cell_type == "code":
            assert cell.execution_count is None and cell.outputs == []
            ast.parse(cell.source)
            assert max(map(len, cell.source.splitlines())) <= 120


def test_it_says_what_to_do_and_what_to_send():
    text = " ".join(cell.source for cell in book().cells)
    for words in ("T4 GPU", "SOURCE", "without a GPU", "standard deviations", "issue", "benchmarks/gpu.py"):
        assert words in text
    first, *rest = (cell for cell in book().cells if cell.cell_type == "code")
    assert first.metadata.tags == ["parameters"] and "SOURCE = None" in first.source
    # Nothing is installed where the package is there.
    assert 'find_spec("pyterrier_cascade") is None' in rest[0].source


def test_it_installs_what_is_not_there(monkeypatch, tmp_path):
    source = next(cell.source for cell in book().cells if cell.id == "install")
    asked = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: asked.append(command[-1]))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^set SOURCE, in the cell above, to the address of the repository, and run"):
        exec(source, {"SOURCE": None})
    exec(source, {"SOURCE": "git+https://example.org/a.git"})
    monkeypatch.chdir(NOTEBOOK.parent)
    exec(source, {"SOURCE": None})
    assert asked == ["git+https://example.org/a.git", ".."]


def run(folder: Path, inserted: dict[str, str], claims: tuple[str, ...]) -> None:
    """Runs the notebook with cells behind those of some names, and then checks the claims."""
    found = book()
    for name, source in inserted.items():
        place = next(i for i, cell in enumerate(found.cells) if cell.id == name)
        found.cells.insert(place + 1, nbformat.v4.new_code_cell(source))
    found.cells += [nbformat.v4.new_code_cell(f"assert {claim}") for claim in claims]
    NotebookClient(found, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()


@pytest.fixture
def model(tmp_path):
    return tiny.save(tmp_path / "model", layers=3)


@pytest.mark.slow
def test_it_runs_to_its_end_without_a_gpu(model, tmp_path):
    few = "CHECKED, AT_ONCE, CANDIDATES = 2, 2, 5"
    claims = (
        "(DEVICE, gpu, precision) == ('cpu', 'none', 'fp32')",
        "len(checks) == 6 and checks['holds'].all()",
        "(times > 0).all().all() and len(losses) >= 1",
    )
    run(tmp_path, {"parameters": f"MODEL = {model!r}", "find-gpu": few}, claims)


@pytest.mark.slow
@pytest.mark.skipif(sim.missing() is not None, reason=str(sim.missing()))
def test_all_of_it_holds_on_the_simulated_gpu(model, tmp_path):
    """A real GPU is what ``device=None`` finds; the simulated one has to be named."""
    given = SIMULATED.format(project=str(PROJECT))
    named = "encoder = encoder(device=DEVICE); precision = encoder.computed_precision"
    claims = (
        "precision == 'fp16' and set(checks['precision']) == {'fp32', 'fp16'}",
        "len(checks) == 12 and checks['holds'].all()",
        "checks['largest difference'].max() > 0 and sim.launches",
    )
    run(tmp_path, {"parameters": f"MODEL = {model!r}", "find-gpu": given, "load-model": named}, claims)
