import gzip
import json
import pickle
import warnings
from itertools import islice

import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets.asnq import NaturalQuestions, SquadShaped, build, count_labels, select_negatives
from pyterrier_cascade.datasets.asnq.selection import read_question_lists
from tests.datasets.asnq.asnq_files import few_questions, write_lines

SIZES = {"train": 57242, "dev": 1336, "test": 1336}  # CT-37


@pytest.fixture
def official(tmp_path):
    """Official files with invented questions: one comes up again later, one repeats a sentence, one has no answer."""
    folder = tmp_path / "data" / "asnq"
    train = ['q one\tthe "a\t4', "q one\tb\u2028c\t1", "q two\ta\t2", "q two\ta\t3", "q one\tb\t1", "q three\tz\t1"]
    dev = [line for n in range(5) for line in (f"d {n}\tyes {n}\t4", f"d {n}\tno\t{1 + n % 3}")]
    write_lines(folder / "train.tsv.gz", train)
    write_lines(folder / "dev.tsv", dev)
    return tmp_path


@pytest.fixture
def lists(tmp_path):
    folder = tmp_path / "lists"
    for split, questions in {"train": ["q two"], "dev": ["d 0", "d 3"], "test": ["d 1"]}.items():
        write_lines(folder / f"unique.{split}", questions)
    return folder


@pytest.fixture
def built(tmp_path):
    train, dev = (write_lines(tmp_path / f"{name}.jsonl", few_questions(6, n)) for name, n in (("t", 0), ("d", 10)))
    build(NaturalQuestions(train=[train], dev=[dev]), tmp_path / "built", verbose=False)
    return tmp_path / "built"


def load(name, folder, **options):
    return pt.get_dataset(f"as2:{name}", folder=folder, **options)


def test_official_file(official):
    dataset = load("asnq/train", official)
    candidates = dataset.get_candidates()
    assert list(candidates.columns) == ["qid", "query", "docno", "text", "label", "asnq_label"]
    assert candidates["qid"].tolist() == [f"train-0000{n}" for n in (1, 1, 2, 2, 1, 3)]
    assert candidates["query"].tolist() == ["q one", "q one", "q two", "q two", "q one", "q three"]
    assert candidates["text"].tolist() == ['the "a', "b\u2028c", "a", "a", "b", "z"]
    assert candidates["label"].tolist() == [1, 0, 0, 0, 0, 0]
    assert candidates["asnq_label"].tolist() == [4, 1, 2, 3, 1, 1]
    docnos = candidates["docno"].tolist()
    assert docnos[3] == docnos[2] + "-2" and docnos[4].endswith("-t2") and len(set(docnos)) == 6
    assert dataset.get_topics()["query"].tolist() == ["q one", "q two", "q three"]
    assert dataset.get_qrels().equals(candidates[["qid", "docno", "label"]])
    info = dataset.get_info()
    assert (info["name"], info["n_questions"], info["n_pairs"], info["n_positive"]) == ("as2:asnq/raw/train", 3, 6, 1)
    assert count_labels(candidates) == {"questions": 3, "1": 3, "2": 1, "3": 1, "4": 1}
    assert len(load("asnq/no_all_minus/train", official).get_topics()) == 1


def test_corpus_is_the_same_for_every_split_and_holds_every_candidate(official):
    corpora = [list(load(f"asnq/{split}", official).get_corpus_iter(verbose=False)) for split in SIZES]
    assert corpora[0] == corpora[1] == corpora[2]
    texts = {document["docno"]: document["text"] for document in corpora[0]}
    assert len(texts) == len(corpora[0]) == 6 + 5 + 1
    for split in SIZES:
        dataset = load(f"asnq/raw/{split}", official)
        candidates = dataset.get_candidates()
        assert candidates["docno"].map(texts).tolist() == candidates["text"].tolist()
        assert dataset.text_loader().transform(candidates[["docno"]])["text"].tolist() == candidates["text"].tolist()


@pytest.mark.parametrize("below", ["", "asnq", "data/asnq"])
def test_folders_in_which_the_files_are_found(official, below, monkeypatch):
    folder = official / "elsewhere"
    (folder / below).mkdir(parents=True)
    for path in (official / "data" / "asnq").iterdir():
        path.rename(folder / below / path.name)
    assert len(load("asnq/train", folder).get_topics()) == 3
    monkeypatch.setenv("PTC_DATA", str(folder))
    assert len(pt.get_dataset("as2:asnq/train").get_topics()) == 3


def test_missing_official_files(tmp_path):
    with pytest.raises(FileNotFoundError) as err:
        load("asnq/dev", tmp_path).get_topics()
    assert str(err.value) == (
        f"train.tsv (or train.tsv.gz) is neither in {tmp_path} nor in {tmp_path}/asnq nor in {tmp_path}/data/asnq; "
        "unpack https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020/data/asnq.tar and name the folder with "
        "folder=... or PTC_DATA"
    )
    with pytest.raises(FileNotFoundError, match=r"train.tsv.* is nowhere, as no folder is named; unpack https"):
        pt.get_dataset("as2:asnq/dev").get_topics()


@pytest.mark.parametrize(
    "line, message",
    [
        ("q\ta\t5", "label '5' is none of 1, 2, 3, 4"),
        ("q\ta\t0", "label '0' is none of 1, 2, 3, 4"),
        ("q\ta\t", "label '' is none of 1, 2, 3, 4"),
        ("q\ta\t-4", "label '-4' is none of 1, 2, 3, 4"),
        ("q\ta", "2 columns instead of question, sentence and label"),
        ("q\ta\tb\t4", "4 columns instead of question, sentence and label"),
        ("", "1 columns instead of question, sentence and label"),
    ],
)
def test_bad_line(official, line, message):
    path = write_lines(official / "data" / "asnq" / "train.tsv.gz", ["q\ta\t4\r", line, "q\tb\t1"])
    with pytest.raises(ValueError) as err:
        load("asnq/train", official).get_candidates()
    assert str(err.value) == f"{path}, line 2: {message}"


def test_cut_official_file(official):
    path = official / "data" / "asnq" / "train.tsv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"train.tsv.gz: damaged after line \d+ \(Compressed file ended before"):
        load("asnq/train", official).get_candidates()


def test_split_by_the_published_lists(shared_data, tmp_path):
    folder = shared_data / "asnq_questions"
    lists = read_question_lists(folder)
    both = sorted(lists["dev"] | lists["test"])
    write_lines(tmp_path / "train.tsv", [f"{q}\tyes\t4" for q in sorted(lists["train"])])
    write_lines(
        tmp_path / "dev.tsv", [f"{q}\t{a}\t{n}" for q in [*both, "in no list"] for a, n in (("y", 4), ("n", 1))]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for split, n in SIZES.items():
            dataset = load(f"asnq/{split}", tmp_path, questions=str(folder))
            topics = dataset.get_topics()
            assert len(topics) == n and set(topics["query"]) == lists[split]
    assert f"by the question lists in {folder}" in dataset.get_info()["notes"]
    seeded = [set(load(f"asnq/{split}", tmp_path).get_topics()["query"]) for split in ("dev", "test")]
    assert [len(half) for half in seeded] == [1337, 1336] and not seeded[0] & seeded[1]
    assert seeded[0] != lists["dev"]


def test_questions_in_no_list_are_left_out(official, lists):
    queries = [load(f"asnq/raw/{s}", official, questions=lists).get_topics()["query"].tolist() for s in SIZES]
    assert queries == [["q two"], ["d 0", "d 3"], ["d 1"]]


def test_questions_that_the_files_lack_are_counted(official, lists):
    write_lines(lists / "unique.dev", ["d 0", "d 7", "d 8"])
    with pytest.warns(UserWarning) as caught:
        load("asnq/dev", official, questions=lists).get_candidates()
    assert str(caught[0].message) == (
        "as2:asnq/dev: 2 of the 3 questions in unique.dev are not in the files, for instance 'd 7'"
    )


def test_lists_of_something_else(official, lists):
    write_lines(lists / "unique.dev", ["d 7"])
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"as2:asnq/dev: .*dev.tsv has no question for it"):
        load("asnq/dev", official, questions=lists).get_candidates()


def test_damaged_lists(official, lists):
    write_lines(lists / "unique.dev", ["d 0", "d 1"])
    with pytest.raises(ValueError, match=r"'d 1' is both in unique.dev and in unique.test; get the lists again"):
        load("asnq/dev", official, questions=lists).get_candidates()
    (lists / "unique.test").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no unique.test .*; name the folder of the Cascade Transformer's"):
        load("asnq/dev", official, questions=lists).get_candidates()


def test_changed_lists_are_read_again(official, lists):
    dataset = load("asnq/dev", official, questions=lists)
    assert len(dataset.get_topics()) == 2
    write_lines(lists / "unique.dev", ["d 0", "d 3", "d 4"])
    assert len(dataset.get_topics()) == 3


def test_seeded_halves(official):
    halves = {}
    for seed in range(4):
        parts = [load(f"asnq/{s}", official, split_seed=seed).get_topics()["query"] for s in ("dev", "test")]
        assert [len(part) for part in parts] == [3, 2]
        assert set(parts[0]) | set(parts[1]) == {f"d {n}" for n in range(5)}
        halves[seed] = frozenset(parts[0])
    assert len(set(halves.values())) > 1
    assert "split_seed=3, which are not the published" in load("asnq/dev", official, split_seed=3).get_info()["notes"]


def test_built_folder(built):
    dataset = load("asnq-like/train", built)
    candidates = dataset.get_candidates()
    assert candidates["docno"].tolist() == [f"{q}-{s}" for q in range(6) for s in range(4)]
    assert candidates["asnq_label"].tolist() == [4, 3, 2, 1] * 6
    assert candidates["text"].tolist() == ["Ada wrote it .", "It was long .", "So Ada said .", "Nobody knows ."] * 6
    halves = [load(f"asnq-like/{s}", built).get_topics()["qid"].tolist() for s in ("dev", "test")]
    assert sorted(int(qid) for half in halves for qid in half) == list(range(10, 16)) and [len(h) for h in halves] == [
        3,
        3,
    ]
    assert len(dataset.get_corpus_iter(verbose=False)) == 48
    assert dataset.get_info()["mode"] == "raw"


def test_built_folder_in_the_folder_of_all_data(built, monkeypatch):
    built.rename(built.with_name("asnq-like"))
    monkeypatch.setenv("PTC_DATA", str(built.parent))
    assert len(pt.get_dataset("as2:asnq-like/train").get_topics()) == 6


def test_built_folder_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"as2:asnq-like is a folder that build made; name it with folder=..."):
        pt.get_dataset("as2:asnq-like/train").get_topics()
    with pytest.raises(FileNotFoundError, match="is not a finished ASNQ-like folder"):
        load("asnq-like/train", tmp_path).get_topics()


def test_part_without_questions(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", few_questions(2))
    build(NaturalQuestions(train=[path]), tmp_path / "built", verbose=False)
    with pytest.raises(ValueError, match=r"as2:asnq-like/dev: .*manifest.json has no question for it"):
        load("asnq-like/dev", tmp_path / "built").get_candidates()
    assert len(load("asnq-like/train", tmp_path / "built").get_corpus_iter(verbose=False)) == 8


def test_question_ids_that_repeat(tmp_path):
    paths = [write_lines(tmp_path / f"{n}.jsonl", few_questions(2)) for n in range(2)]
    build(NaturalQuestions(train=paths), tmp_path / "built", verbose=False)
    with pytest.raises(ValueError, match="as2:asnq-like/train: question id '0' occurs more than once in "):
        load("asnq-like/train", tmp_path / "built").get_candidates()


@pytest.mark.slow
def test_transfer_set_of_four_million(shared_data, tmp_path):
    paths = [shared_data / "squad" / "dev-v1.1.rebuilt.json.gz", shared_data / "squadshifts" / "new_wiki_v1.0.json.gz"]
    table = build(SquadShaped(paths), tmp_path / "built", verbose=False)
    assert table.loc["pairs", ["train", "dev"]].sum() == 2563815 + 1577386
    pages = {}
    for split in SIZES:
        dataset = load(f"asnq-like/{split}", tmp_path / "built", negatives={1: 2, 2: 2, 3: 2})
        candidates = dataset.get_candidates()
        pages[split] = set(candidates["docno"].str.rpartition("-")[0])
        assert candidates.groupby(["qid", "asnq_label"]).size().drop(4, level=1).max() == 2
        assert not candidates.duplicated(["qid", "docno"]).any()
    assert [len(p) for p in pages.values()] == [86, 5, 5]
    assert not pages["train"] & (pages["dev"] | pages["test"]) and not pages["dev"] & pages["test"]


@pytest.mark.parametrize("negatives", [(), (2, 3), {1: 2, 3: None}])
def test_sampling_while_reading_is_that_of_frames(tmp_path, negatives):
    text = " ".join(f"Ada {n} ." for n in range(9))
    record = json.loads(few_questions(1)[0])
    words = ["<P>", "Ada", ".", "<P>", *text.split(), "<P>", *["Bo", "is", ".", "So", "is", ".", "No", "is", "."]]
    record["document_tokens"] = [{"token": w, "html_token": w == "<P>"} for w in words]
    record["annotations"][0]["long_answer"] = {"start_token": 0, "end_token": 3}
    path = write_lines(tmp_path / "t.jsonl", [json.dumps({**record, "example_id": n}) for n in range(5)])
    build(NaturalQuestions(train=[path]), tmp_path / "built", verbose=False)
    whole = load("asnq-like/train", tmp_path / "built").get_candidates()
    for seed in (0, 1):
        dataset = load("asnq-like/train", tmp_path / "built", negatives=negatives, sample_seed=seed)
        expected = select_negatives(whole, negatives, seed).reset_index(drop=True)
        assert_frame_equal(dataset.get_candidates(), expected)
        kept = dataset.get_corpus_iter(verbose=False)
        assert {d["docno"] for d in kept} == set(expected["docno"])
    assert len(dataset.get_candidates()) == {0: 5, 2: None}.get(len(negatives)) or len(negatives) == 2


def test_it_is_a_value(built, lists):
    dataset = load("asnq-like/dev", built, negatives={3: 2, 1: None}, sample_seed=4, questions=str(lists))
    assert repr(dataset) == (
        f"pt.get_dataset('as2:asnq-like/no_all_minus/dev', folder={str(built)!r}, questions={str(lists)!r}, "
        "negatives=((1, None), (3, 2)), sample_seed=4)"
    )
    assert eval(repr(dataset)) == pickle.loads(pickle.dumps(dataset)) == dataset
    assert dataset != load("asnq-like/dev", built)


def test_iterating_reads_no_further_than_asked(built):
    (built / "00001-00000.jsonl.gz").write_bytes(gzip.compress(b""))
    collection = load("asnq-like/train", built).collection
    with pytest.raises(ValueError, match=r"00001-00000.jsonl.gz' is missing or not of its"):
        next(collection.iter_questions("train"))


def test_questions_one_at_a_time(built):
    collection = load("asnq-like/train", built, negatives=(3,)).collection
    first, second = islice(collection.iter_questions("train"), 2)
    assert (first.qid, first.query, first.docnos, first.labels) == ("0", "who wrote 0", ["0-0", "0-1"], [4, 3])
    assert second.qid == "1"


@pytest.mark.parametrize("options", [{"questions": "no/such"}, {"folder": "no/such"}])
def test_folders_that_do_not_exist(options):
    with pytest.raises(FileNotFoundError, match="folder 'no/such' does not exist"):
        pt.get_dataset("as2:asnq/dev", **options)


def test_negatives_are_checked_at_the_door():
    with pytest.raises(ValueError, match=r"negatives=.*: 4 is not one of the labels 1, 2, 3"):
        pt.get_dataset("as2:asnq/dev", negatives=(4,))


def test_a_damaged_shard_is_named(built):
    shard = built / "00000-00000.jsonl.gz"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes() + b"x")
    with pytest.raises(ValueError, match=f"{shard}' is missing or not of its {size} bytes"):
        load("asnq-like/train", built).get_candidates()
