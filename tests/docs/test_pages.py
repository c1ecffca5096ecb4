"""The pages build without a warning, lead nowhere that is not there, and name all that is public."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import pyterrier_cascade

PROJECT = Path(__file__).parents[2]
PAGES = Path(str(resources.files("pyterrier_cascade") / "pt_docs"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in PAGES.glob("*.rst")}


def test_every_page_is_in_the_table_of_contents():
    contents = re.search(r"^\.\. toctree::\n(?: {3}:.*\n)*\n((?: {3}\w+\n)+)", TEXTS["index"], re.M).group(1)
    assert sorted(contents.split()) == sorted(TEXTS.keys() - {"index"})


def test_every_public_name_is_in_the_reference():
    documented = re.findall(r"^\.\. (?:auto|py:)\w+:: pyterrier_cascade\.(\w+)$", TEXTS["api"], re.M)
    assert sorted(documented) == pyterrier_cascade.__all__


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_a_page_is_short_and_its_lines_fit(page):
    lines = TEXTS[page].splitlines()
    assert len(lines) <= 200 and max(map(len, lines)) <= 120


@pytest.mark.parametrize("page", [*sorted(TEXTS), "README"])
def test_files_that_a_page_names_are_there(page):
    text = TEXTS.get(page) or (PROJECT / "README.rst").read_text(encoding="utf-8")
    named = re.findall(r"``((?:benchmarks|examples)/[\w./]*)``", text)
    named += re.findall(r"<([\w./]+/[\w./]*)>`__|^\.\. image:: ([\w./]+/[\w./]*)$", text, re.M)
    named = ["".join(one) for one in named]
    assert [path for path in named if not (PROJECT / path).exists()] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    for module in ("sphinx", "furo"):
        if find_spec(module) is None:
            pytest.skip(f'needs {module}: pip install "pyterrier_cascade[docs]"')
    folder = tmp_path_factory.mktemp("built")
    # The build copies the pages beside its configuration.
    source = shutil.copytree(PROJECT / "docs", folder / "docs", ignore=shutil.ignore_patterns("pages"))
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(source), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Links(HTMLParser):
    """What a page can be reached by, and what it leads to."""

    def __init__(self, page: Path):
        super().__init__()
        self.ids, self.targets = set(), set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        self.targets.add(attributes.get("href" if tag == "a" else "src"))


def test_no_link_is_dead(built):
    links = {page: Links(page) for page in built.rglob("*.html")}
    dead, followed = [], 0
    for page, found in links.items():
        for target in filter(None, found.targets):
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            followed += 1
            to = (page.parent / unquote(url.path)).resolve() if url.path else page.resolve()
            there = to.exists() and (not url.fragment or to not in links or unquote(url.fragment) in links[to].ids)
            if not there:
                dead.append(f"{page.relative_to(built)}: {target}")
    assert followed > 100 and not dead


@pytest.mark.parametrize(
    ("page", "drawn"),
    [
        ("index", "BM25 Cascade"),
        ("bm25", "BM25"),
        ("crossencoder", "BM25 CrossEncoder"),
        ("cascade", "BM25 [4] [6] Cascade[12] SequentialReranker"),
        ("dcbert", "BM25 DCBERT CachedRanker"),
        ("hierarchical", "BM25 HierarchicalRanker"),
        ("tanda", "BM25 Tanda"),
    ],
)
def test_every_ranker_is_drawn(built, page, drawn):
    titles = re.findall(r'class="pts-transformer-title">([^<]+)<', (built / "pages" / f"{page}.html").read_text())
    assert set(drawn.split()) <= set(titles)
