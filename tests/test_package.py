"""The house: public names, rings of imports, lint, and commands that are those of the README."""

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pyterrier_cascade

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "pyterrier_cascade"


def imports(path: Path) -> set[str]:
    """All modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found.add(node.module)
    return found


def test_public_names_are_there_and_sorted():
    assert pyterrier_cascade.__all__ == sorted(pyterrier_cascade.__all__)
    for name in pyterrier_cascade.__all__:
        assert getattr(pyterrier_cascade, name) is not None
    assert set(pyterrier_cascade.__all__) <= set(dir(pyterrier_cascade))
    with pytest.raises(AttributeError, match="module 'pyterrier_cascade' has no attribute 'Nothing'"):
        _ = pyterrier_cascade.Nothing


@pytest.mark.parametrize(
    "statement",
    ["import pyterrier_cascade", "import pyterrier", "import pyterrier as pt; pt.get_dataset('as2:facts/test')"],
)
def test_importing_is_cheap(statement):
    heavy = ("torch", "transformers", "accelerate", "ray")
    code = f"{statement}; import sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


PAPERS = ("cascade", "crossencoder", "dcbert", "hierarchical", "tanda")
OUTER = ("cli", "registry.py", "__init__.py", "__main__.py")
"""The rooms that know all papers: the command line, and the table that names them."""

NUMBERS = ["certificate", "groups", "grid", "policy", "pruning", "rank_measures", "ranking"]
TENSORS = [
    *(PACKAGE / "encoder").rglob("*.py"),
    *(PACKAGE / "training").rglob("*.py"),
    *(PACKAGE / "early_exit" / "rules").rglob("*.py"),
    *(PACKAGE / "early_exit" / f"{name}.py" for name in NUMBERS),
    *PACKAGE.rglob("model.py"),
]


@pytest.mark.parametrize("path", TENSORS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_tensors_know_neither_pandas_nor_pyterrier(path):
    tops = {module.split(".")[0] for module in imports(path)}
    assert not tops & {"pandas", "pyterrier"}
    outer = {"pyterrier_cascade.frames", "pyterrier_cascade.ranker", "pyterrier_cascade.datasets"}
    assert not imports(path) & outer


def papers_of(path: Path) -> set[str]:
    """The papers that a file imports."""
    return {m.split(".")[1] for m in imports(path) if m.startswith("pyterrier_cascade.")} & set(PAPERS)


def test_shared_ground_imports_no_paper():
    shared = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in (*PAPERS, *OUTER)]
    assert len(shared) > 50
    assert {str(path.relative_to(PACKAGE)): papers_of(path) for path in shared if papers_of(path)} == {}


def test_papers_import_each_other_in_no_cycle():
    built_on = {
        paper: set().union(*(papers_of(path) for path in (PACKAGE / paper).rglob("*.py"))) - {paper} for paper in PAPERS
    }
    assert list(graphlib.TopologicalSorter(built_on).static_order())


def test_a_class_name_means_one_class():
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_is_content(command):
    done = subprocess.run([sys.executable, "-m", "ruff", *command, str(PROJECT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_examples_and_docs_know_nothing_of_this_machine():
    text = "\n".join(p.read_text() for p in PROJECT.rglob("*") if p.suffix in {".py", ".rst", ".md", ".toml"} and
                     not set(p.relative_to(PROJECT).parts) & {".venv", "build", "dist", "pages"})  # fmt: skip
    assert not re.findall(r"(?<![\w.])/(?:home|root|work|tmp)/\w+", text)
