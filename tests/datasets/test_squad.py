import gzip
import json
import pickle

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade.datasets.squad import HALVES


@pytest.fixture
def path(tmp_path, squad_record):
    path = tmp_path / "my.json"
    path.write_text(json.dumps(squad_record))
    return path


@pytest.mark.parametrize(
    "release, paragraphs, questions, answers", [("dev-v1.1", 2067, 10570, 34726), ("new_wiki_v1.0", 1581, 7938, 22794)]
)
def test_counts(shared_data, release, paragraphs, questions, answers):
    dataset = pt.get_dataset(f"as2:squad-open/{release}", folder=shared_data)
    corpus = {document["docno"]: document for document in dataset.get_corpus_iter(verbose=False)}
    assert len(corpus) == paragraphs and len({docno.split("-")[0] for docno in corpus}) == 48
    qrels, topics = dataset.get_qrels(), dataset.get_topics()
    assert qrels["qid"].tolist() == topics["qid"].tolist()
    assert topics["qid"].nunique() == len(topics) == questions
    gold = dict(zip(qrels["qid"], qrels["docno"], strict=True))
    found = dataset.get_answers()
    assert len(found) == answers and found["qid"].nunique() == questions
    assert all(a in corpus[gold[q]]["text"] for q, a in found.itertuples(index=False))


@pytest.mark.parametrize(
    "release, questions, answers",
    [("dev-v1.1", (5665, 4905), (18471, 16255)), ("new_wiki_v1.0", (3923, 4015), (11289, 11505))],
)
def test_halves_by_article(shared_data, release, questions, answers):
    whole = pt.get_dataset(f"as2:squad-open/{release}", folder=shared_data)
    halves = [pt.get_dataset(f"as2:squad-open/{release}", folder=shared_data, articles=half) for half in HALVES]
    for remainder, half in enumerate(halves):
        qrels = half.get_qrels()
        assert {int(docno.split("-")[0]) for docno in qrels["docno"]} == set(range(remainder, 48, 2))
        assert len(qrels) == half.get_info()["n_questions"] == questions[remainder]
        assert half.get_topics()["qid"].tolist() == half.get_answers()["qid"].unique().tolist() == list(qrels["qid"])
        assert len(half.get_answers()) == answers[remainder]
        assert half.get_topics().index.equals(pd.RangeIndex(questions[remainder]))
        assert list(half.get_corpus_iter(verbose=False)) == list(whole.get_corpus_iter(verbose=False))
    for frame in ("get_topics", "get_qrels", "get_answers"):
        both = pd.concat([getattr(half, frame)() for half in halves])
        columns = list(both.columns)
        ours, theirs = both.sort_values(columns), getattr(whole, frame)().sort_values(columns)
        pd.testing.assert_frame_equal(ours.reset_index(drop=True), theirs.reset_index(drop=True))


def test_half_of_a_small_file(path):
    even, odd = (pt.get_dataset("as2:squad-open", file=path, articles=half) for half in HALVES)
    assert even.get_topics()["qid"].tolist() == ["1", "2", "3"]
    assert even.get_answers().values.tolist() == [["1", "Ada"], ["1", "Ada wrote"], ["2", "long"]]
    assert len(odd.get_topics()) == len(odd.get_qrels()) == len(odd.get_answers()) == 0
    assert list(odd.get_qrels().columns) == ["qid", "docno", "label"]
    assert len(list(odd.get_corpus_iter(verbose=False))) == 3
    assert (even.get_info()["split"], odd.get_info()["split"]) == ("even", "odd")
    assert repr(odd) == f"pt.get_dataset('as2:squad-open', file={str(path)!r}, articles='odd')"
    assert eval(repr(odd)) == pickle.loads(pickle.dumps(odd)) == odd != even
    assert odd != pt.get_dataset("as2:squad-open", file=path)


def test_unknown_half():
    with pytest.raises(ValueError) as err:
        pt.get_dataset("as2:squad-open/dev-v1.1", articles="first")
    assert str(err.value) == "articles must be one of even, odd, not 'first'"


def test_any_file_of_that_shape(path):
    dataset = pt.get_dataset("as2:squad-open", file=path)
    assert list(dataset.get_corpus_iter(verbose=False)) == [
        {"docno": "0-0", "text": "Ada wrote the notes.", "title": "Ada"},
        {"docno": "0-1", "text": "They were long.", "title": "Ada"},
        {"docno": "1-0", "text": "Ships sail.", "title": "Ships"},
    ]
    topics = [["1", "Who wrote?"], ["2", "How were they?"], ["3", "Why?"]]
    assert dataset.get_topics().values.tolist() == topics
    assert dataset.get_qrels().values.tolist() == [["1", "0-0", 1], ["2", "0-1", 1], ["3", "0-1", 1]]
    assert dataset.get_answers().values.tolist() == [["1", "Ada"], ["1", "Ada wrote"], ["2", "long"]]
    info = dataset.get_info()
    assert (info["mode"], info["n_questions"], info["n_pairs"], info["n_positive"]) == ("raw", 3, 3, 3)
    assert dataset.info_url() is None


def test_it_is_a_value(path):
    dataset = pt.get_dataset("as2:squad-open", file=path)
    assert repr(dataset) == f"pt.get_dataset('as2:squad-open', file={str(path)!r})"
    assert eval(repr(dataset)) == pickle.loads(pickle.dumps(dataset)) == dataset


def test_gzipped(path):
    zipped = path.with_suffix(".json.gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert len(pt.get_dataset("as2:squad-open", file=str(zipped)).get_topics()) == 3


def test_there_are_no_candidates(path):
    with pytest.raises(NotImplementedError) as err:
        pt.get_dataset("as2:squad-open", file=path).get_candidates()
    assert str(err.value) == (
        "as2:squad-open has no candidate lists: retrieve them, for instance with "
        "BM25.from_docs(dataset.get_corpus_iter()) % 100"
    )


@pytest.mark.parametrize("name, file", [("squad-open", None), ("squad-open/dev-v1.1", "x.json")])
def test_either_a_name_or_a_file(name, file):
    with pytest.raises(ValueError) as err:
        pt.get_dataset(f"as2:{name}", **({"file": file} if file else {}))
    assert str(err.value) == (
        f"as2:{name} with file={file!r}; use as2:squad-open/<name> with a name among dev-v1.1, new_wiki_v1.0, "
        "or as2:squad-open with file='path/to/squad-shaped.json'"
    )


def test_missing_file():
    dataset = pt.get_dataset("as2:squad-open", file="no/such.json")
    with pytest.raises(FileNotFoundError) as err:
        dataset.get_topics()
    assert str(err.value) == "there is no file 'no/such.json'; file=... takes a SQuAD-shaped .json or .json.gz"


def drop(record, *keys):
    *parents, last = keys
    for key in parents:
        record = record[key]
    del record[last]


@pytest.mark.parametrize(
    "keys, message",
    [
        (["data"], ": not 'data', a list of articles with 'paragraphs', as in SQuAD (KeyError('data'))"),
        (
            ["data", 1, "paragraphs"],
            ": not 'data', a list of articles with 'paragraphs', as in SQuAD (KeyError('paragraphs'))",
        ),
        (
            ["data", 0, "paragraphs", 1, "context"],
            ": paragraph 0-1 does not have the shape of SQuAD (KeyError('context'))",
        ),
        (
            ["data", 0, "paragraphs", 1, "qas", 0, "id"],
            ": paragraph 0-1 does not have the shape of SQuAD (KeyError('id'))",
        ),
    ],
)
def test_wrong_shape(path, squad_record, keys, message):
    drop(squad_record, *keys)
    path.write_text(json.dumps(squad_record))
    with pytest.raises(ValueError) as err:
        pt.get_dataset("as2:squad-open", file=path).get_topics()
    assert str(err.value) == f"{path}{message}"


def test_cut_file(path):
    path.write_text('{"data": [\n{"title"')
    with pytest.raises(ValueError) as err:
        pt.get_dataset("as2:squad-open", file=path).get_topics()
    assert str(err.value) == f"{path}, line 2: not JSON (Expecting ':' delimiter at column 9); get the file again"


def test_repeated_question_id(path, squad_record):
    squad_record["data"][0]["paragraphs"][1]["qas"][0]["id"] = "1"
    path.write_text(json.dumps(squad_record))
    with pytest.raises(ValueError) as err:
        pt.get_dataset("as2:squad-open", file=path).get_topics()
    assert str(err.value) == f"{path}: question id '1' occurs more than once"
