"""The pages build without a warning, lead nowhere that is not there, and name all that is public."""

import re
import shutil
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pyterrier_cascade import registry

PROJECT = Path(__file__).parents[2]
PAGES = Path(str(resources.files("pyterrier_cascade") / "pt_docs"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in PAGES.glob("*.rst")}
# A code of a statement of the papers, not within a longer word such as AVX-512.
CODE = r"\b(?:CT|TA|DC|HR|X)-\d+\b"
# A page that lists one entry for each code or name is as long as the list.
LONG = {"api", "readings"}
SCRIPTS = ["benchmarks", "docs", "examples", "pyterrier_cascade", "tests"]


def test_every_page_is_in_the_table_of_contents():
    contents = re.search(r"^\.\. toctree::\n(?: {3}:.*\n)*\n((?: {3}\w+\n)+)", TEXTS["index"], re.M).group(1)
    assert sorted(contents.split()) == sorted(TEXTS.keys() - {"index"})


def entries() -> dict[str, str]:
    """Returns the text of each entry on the API page that has the name of something public."""
    found = re.split(r"^\.\. (?:auto|py:)\w+:: ", TEXTS["api"], flags=re.M)[1:]
    root = f"{registry.ROOT}."
    texts = {entry.split("\n", 1)[0].removeprefix(root): entry for entry in found}
    return {name: text for name, text in texts.items() if "." not in name}


def test_the_reference_has_the_public_names_of_the_registry():
    missing = [
        f".. auto{'class' if isinstance(registry.public(name), type) else 'function'}:: {registry.ROOT}.{name}"
        for name in registry.homes()
        if name not in entries()
    ]
    assert not missing, "add to pt_docs/api.rst:\n" + "\n".join(missing)
    assert entries().keys() <= registry.homes().keys()


@pytest.mark.parametrize("name", registry.homes())
def test_the_reference_leads_to_a_page_that_uses_the_name(name):
    page = re.search(r"^   Example: :doc:`(\w+)`\.$", entries()[name], re.M)[1]
    assert re.search(rf"\b{name}\b", TEXTS[page])


@pytest.mark.parametrize("name", [one.name for one in registry.RERANKERS])
def test_the_reference_says_how_a_reranker_is_loaded_trained_and_saved(name):
    members = {"from_pretrained", "fit", "fit_candidates", "with_training", "apart", "history"}
    members |= {"save_pretrained", "push_to_hub"}
    assert members <= set(re.findall(r"\w+", entries()[name]))


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_a_page_is_short_and_its_lines_fit(page):
    lines = TEXTS[page].splitlines()
    assert len(lines) <= 230 or page in LONG
    assert max(map(len, lines)) <= 120


def code_lines(text: str) -> list[str]:
    """Returns the lines of a page that it shows as code: examples with their output, and blocks of code."""
    examples = re.findall(r"^>>> .*\n(?:.+\n)*", text, re.M)
    blocks = re.findall(r"^\.\. code-block:: \w+\n\n((?:   .*\n|\n)+)", text, re.M)
    return [*"".join(examples).splitlines(), *textwrap.dedent("".join(blocks)).splitlines()]


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_no_line_of_code_is_cut_off_at_the_width_of_a_page(page):
    assert [line for line in code_lines(TEXTS[page]) if len(line) > 88] == []


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_an_example_prints_the_thing_itself(page):
    assert re.findall(r"^(?:>>>|\.\.\.) .*\n(?:True|False)$", TEXTS[page], re.M) == []


def cited(text: str) -> set[str]:
    """Returns the codes that a text cites, those within ranges such as HR-1 to HR-5 too."""
    found = set(re.findall(CODE, text))
    for paper, first, last in re.findall(r"\b(CT|TA|DC|HR|X)-(\d+)`? to (?::term:`)?\1-(\d+)\b", text):
        found |= {f"{paper}-{number}" for number in range(int(first), int(last) + 1)}
    return found


def explained() -> list[str]:
    return re.findall(rf"^   ({CODE})$", TEXTS["readings"], re.M)


def test_every_code_that_is_cited_has_one_entry_among_the_readings():
    files = [path for folder in SCRIPTS for path in (PROJECT / folder).rglob("*") if path.suffix in (".py", ".ipynb")]
    texts = [*TEXTS.values(), *(path.read_text(encoding="utf-8") for path in files)]
    every = set().union(*map(cited, texts))
    assert len(every) > 100 and sorted(every - set(explained())) == []
    assert len(explained()) == len(set(explained()))


@pytest.mark.parametrize("page", sorted(TEXTS.keys() - {"readings"}))
def test_a_code_leads_to_the_readings(page):
    prose = re.sub(r"``.*?``|^(?:>>>|\.\.\.).*$", "", TEXTS[page], flags=re.M)
    assert re.findall(rf"(?<!:term:`){CODE}", prose) == []
    assert set(re.findall(r":term:`([^`]+)`", prose)) <= set(explained())


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


def test_a_code_in_a_docstring_leads_to_the_readings(built):
    page = (built / "pages" / "api.html").read_text(encoding="utf-8")
    linked = re.findall(rf'href="readings\.html#term-({CODE})"', page)
    article = re.search(r"<article.*?</article>", page, re.S)[0]
    prose = re.sub(
        r'<a class="reference internal" href="readings.*?</a>|<code.*?</code>|<[^>]*>', "", article, flags=re.S
    )
    assert len(linked) > 40 and re.findall(CODE, prose) == []


def test_a_measure_is_not_taken_for_an_address_of_mail(built):
    mailed = [page.name for page in built.rglob("*.html") if "mailto:" in page.read_text(encoding="utf-8")]
    assert mailed == [], r"write P\@10"


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
