import pytest

from tests.datasets.as2_files import wikiqa_text


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """No test sees the user's files: the environment is empty and PyTerrier's home is new."""
    monkeypatch.delenv("PTC_DATA", raising=False)
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "home"))


@pytest.fixture
def wikiqa_folder(tmp_path):
    """Three invented files: `a` has both labels, `p` only correct ones, `n` only wrong ones."""
    rows = [
        ("a", 'the "first', 1),
        ("a", "second", 0),
        ("p", "third", 1),
        ("n", 'fourth" one\u2028here', 0),
        ("n", "fifth", 0),
    ]
    folder = tmp_path / "data" / "wikiqa"
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (folder / f"WikiQA-{split}.tsv").write_bytes(wikiqa_text(*rows).encode())
    return folder.parent


@pytest.fixture
def squad_record():
    def question(qid, text, *answers, **more):
        return {"id": qid, "question": text, "answers": [{"text": a, "answer_start": 0} for a in answers], **more}

    first = {"context": "Ada wrote the notes.", "qas": [question("1", "Who wrote?", "Ada", "Ada wrote")]}
    second = {"context": "They were long.", "qas": [question("2", "How were they?", "long"), question("3", "Why?")]}
    second["qas"].append(question("4", "Never?", is_impossible=True))
    third = {"context": "Ships sail.", "qas": []}
    return {
        "version": "1.1",
        "data": [{"title": "Ada", "paragraphs": [first, second]}, {"title": "Ships", "paragraphs": [third]}],
    }
