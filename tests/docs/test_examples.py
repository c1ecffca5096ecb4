"""The examples on the pages: each page runs by itself, and together they use every public name."""

import ast
import doctest
from importlib import resources

import pytest

import pyterrier_cascade
from pyterrier_cascade import demo
from tests import tiny

PAGES = sorted(
    (path for path in (resources.files("pyterrier_cascade") / "pt_docs").iterdir() if path.name.endswith(".rst")),
    key=lambda path: path.name,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(page) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"), page.name)


RUNNING = [page for page in PAGES if examples(page)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """As deep as the small encoder of the extra [demo], so that all that depends on depth is the same."""
    return tiny.save(tmp_path_factory.mktemp("docs") / "encoder", layers=6, outputs=None)


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_examples_run(page, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "small_encoder", lambda name=None: encoder)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    said = []
    test = doctest.DocTestParser().get_doctest(page.read_text(encoding="utf-8"), {}, page.name, str(page), 0)
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert tried and not failed, "".join(said)


def test_every_public_name_is_in_an_example():
    used = set()
    for page in RUNNING:
        for node in ast.walk(ast.parse("".join(example.source for example in examples(page)))):
            if isinstance(node, ast.Name):
                used.add(node.id)
    assert set(pyterrier_cascade.__all__) - used == set()
