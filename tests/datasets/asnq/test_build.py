import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyterrier as pt
import pytest

from pyterrier_cascade.datasets.asnq import NaturalQuestions, SquadShaped, build
from pyterrier_cascade.datasets.asnq.built_folder import MANIFEST, read_manifest
from tests.datasets.asnq.asnq_files import contents, few_questions, write_lines


@pytest.fixture
def questions(tmp_path):
    """Two train files and a dev file with seven questions each; one more in train has no answer."""
    folder = tmp_path / "nq"
    nothing = few_questions(1, 90)[0].replace('"start_token": 1, "end_token": 2', '"start_token": -1, "end_token": -1')
    write_lines(folder / "train" / "a.jsonl.gz", [nothing, *few_questions(7)])
    write_lines(folder / "train" / "b.jsonl.gz", few_questions(7, 10))
    write_lines(folder / "dev" / "a.jsonl", few_questions(7, 20))
    return folder


def source(folder):
    return NaturalQuestions(train=str(folder / "train"), dev=str(folder / "dev"))


def silently(what, folder, **options):
    return build(what, folder, verbose=False, **options)


def test_table(questions, tmp_path, capsys):
    table = build(source(questions), tmp_path / "built")
    printed = capsys.readouterr()
    assert printed.out == (
        "          in long answer has short answer train dev\n"
        "label                                              \n"
        "1                     no               no    14   7\n"
        "2                     no              yes    14   7\n"
        "3                    yes               no    14   7\n"
        "4                    yes              yes    14   7\n"
        "pairs                                        56  28\n"
        "questions                                    14   7\n"
    )
    assert "building built: 100%" in printed.err and "shards=3" in printed.err
    assert table["train"].tolist() == [14, 14, 14, 14, 56, 14]
    assert silently(source(questions), tmp_path / "built").equals(table)
    assert capsys.readouterr() == ("", "")


def test_processes_change_nothing(questions, tmp_path):
    silently(source(questions), tmp_path / "one", records_per_shard=3)
    silently(source(questions), tmp_path / "two", records_per_shard=3, processes=2)
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "two")
    shards = [name for name in one if name.endswith(".jsonl.gz")]
    assert shards == [f"{n:05d}-{k:05d}.jsonl.gz" for n in range(3) for k in range(3)]
    assert len(one) == 9 + 3 + 2


def test_real_questions_in_several_processes(shared_data, tmp_path):
    folder = shared_data / "nq_sample"
    train = [str(folder / f"nq-train-0{n}.jsonl.gz") for n in (0, 1)]
    sample = NaturalQuestions(train=train, dev=[str(folder / "nq-dev-00.jsonl.gz")])
    one = silently(sample, tmp_path / "one")
    two = silently(sample, tmp_path / "two", processes=3, records_per_shard=1)
    assert one.equals(two)
    assert one["train"].tolist() == [2660, 1, 56, 2, 2719, 2]
    assert one["dev"].tolist() == [269, 0, 2, 1, 272, 1]


def test_shards_hold_their_records_and_nothing_of_this_machine(questions, tmp_path):
    silently(source(questions), tmp_path / "built", records_per_shard=5)
    shards = read_manifest(tmp_path / "built")["shards"]
    # The first record of the first file has no answer, and counts among the five.
    assert [shard["counts"]["train"]["questions"] for shard in shards[:4]] == [4, 3, 5, 2]
    text = b"".join(gzip.decompress(c) if n.endswith("gz") else c for n, c in contents(tmp_path / "built").items())
    assert str(tmp_path).encode() not in text


BUILD = """
import sys
from pyterrier_cascade.datasets.asnq import NaturalQuestions, build
if __name__ == "__main__":
    source = NaturalQuestions(train=sys.argv[1], dev=())
    build(source, sys.argv[2], records_per_shard=1, processes=int(sys.argv[3]), verbose=False)
"""


def start(tmp_path, processes):
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    command = [sys.executable, script, tmp_path / "many", tmp_path / "built", str(processes)]
    return subprocess.Popen(command, start_new_session=True)


def running(group):
    """The processes of a group that live, by /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for orphans in /proc")
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_and_resumed(tmp_path, processes):
    built = tmp_path / "built"
    # With two processes, that of the first file soon has nothing to do.
    write_lines(tmp_path / "many" / "0.jsonl.gz", few_questions(3))
    write_lines(tmp_path / "many" / "1.jsonl.gz", few_questions(250, 1000))
    child = start(tmp_path, processes)
    try:
        wait_until(lambda: len(list(built.glob("[0-9]*.jsonl.gz"))) >= 9)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    try:
        wait_until(lambda: not running(child.pid), seconds=10)
    finally:
        for orphan in running(child.pid):
            os.kill(orphan, signal.SIGKILL)
    assert not (built / MANIFEST).exists()
    before = {path: path.stat().st_mtime_ns for path in built.glob("[0-9]*.jsonl.gz")}
    assert 9 <= len(before) < 253
    with pytest.raises(FileNotFoundError) as err:
        pt.get_dataset("as2:asnq-like/train", folder=built).get_candidates()
    assert str(err.value) == (
        f"{built} is not a finished ASNQ-like folder: manifest.json, which is written last, is missing; run the same "
        "build again to complete it"
    )
    (built / ".tmp-0123456789ab-00000-00000.jsonl.gz").write_bytes(b"half")
    whole = NaturalQuestions(train=str(tmp_path / "many"))
    silently(whole, built, records_per_shard=1)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    silently(whole, tmp_path / "clean", records_per_shard=1)
    assert contents(built) == contents(tmp_path / "clean")


def test_interrupted_between_files(questions, tmp_path, monkeypatch):
    silently(source(questions), tmp_path / "clean")
    third = questions / "dev" / "a.jsonl"
    good = third.read_bytes()
    third.write_bytes(good[:-40])
    with pytest.raises(ValueError):
        silently(source(questions), tmp_path / "built")
    read = []
    records = NaturalQuestions.records
    monkeypatch.setattr(NaturalQuestions, "records", lambda self, n: read.append(n) or records(self, n))
    third.write_bytes(good)
    silently(source(questions), tmp_path / "built")
    assert read == [2]
    assert contents(tmp_path / "built") == contents(tmp_path / "clean")


@pytest.mark.parametrize("processes", [1, 2])
def test_cut_gzip_file(questions, tmp_path, processes):
    silently(source(questions), tmp_path / "clean", records_per_shard=2)
    path = questions / "train" / "b.jsonl.gz"
    good = path.read_bytes()
    path.write_bytes(good[:-12])
    with pytest.raises(ValueError) as err:
        silently(source(questions), tmp_path / "built", records_per_shard=2, processes=processes)
    message = "Compressed file ended before the end-of-stream marker was reached"
    assert str(err.value).startswith(f"{path}: damaged after line ")
    assert str(err.value).endswith(f"({message}); get the file again")
    # Not even the part that could be read stays: only the end of the file has its checksum.
    assert not list((tmp_path / "built").glob("00001*"))
    with pytest.raises(FileNotFoundError, match="not a finished ASNQ-like folder"):
        pt.get_dataset("as2:asnq-like/train", folder=tmp_path / "built").get_topics()
    path.write_bytes(good)
    silently(source(questions), tmp_path / "built", records_per_shard=2)
    assert contents(tmp_path / "built") == contents(tmp_path / "clean")


def test_wrong_checksum(questions, tmp_path):
    path = questions / "train" / "b.jsonl.gz"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"b.jsonl.gz: damaged after line 7 \(CRC check failed"):
        silently(source(questions), tmp_path / "built", records_per_shard=2)
    assert list((tmp_path / "built").glob("00000*")) and not list((tmp_path / "built").glob("00001*"))


@pytest.mark.parametrize("processes", [1, 2])
def test_line_broken_in_the_middle(questions, tmp_path, processes):
    lines = few_questions(6)
    lines[3] = lines[3][:200]
    path = write_lines(questions / "train" / "a.jsonl.gz", lines)
    with pytest.raises(ValueError) as err:
        silently(source(questions), tmp_path / "built", records_per_shard=2, processes=processes)
    assert str(err.value).startswith(f"{path}, line 4: not JSON (")
    assert str(err.value).endswith("); get the file again")
    assert not (tmp_path / "built" / MANIFEST).exists() and not list((tmp_path / "built").glob("00000*"))
    assert not list((tmp_path / "built").glob(".tmp*"))


def test_a_file_that_was_replaced_is_done_anew(questions, tmp_path):
    built, last = tmp_path / "built", questions / "dev" / "a.jsonl"
    good = last.read_bytes()
    last.write_bytes(good[:-40])
    with pytest.raises(ValueError):
        silently(source(questions), built, records_per_shard=2)
    last.write_bytes(good)
    write_lines(questions / "train" / "b.jsonl.gz", few_questions(2, 50))
    silently(source(questions), built, records_per_shard=2)
    silently(source(questions), tmp_path / "clean", records_per_shard=2)
    assert contents(built) == contents(tmp_path / "clean")


def test_another_build_in_the_same_folder(questions, tmp_path):
    built = tmp_path / "built"
    silently(source(questions), built)
    with pytest.raises(ValueError) as err:
        silently(source(questions), built, records_per_shard=2)
    assert str(err.value) == (
        f"{built} was begun with records_per_shard=1000, and not with records_per_shard=2; build with the same files "
        "and settings, or in another folder"
    )
    with pytest.raises(ValueError, match=r"was begun with files=.*, and not with files="):
        silently(NaturalQuestions(train=str(questions / "train")), built)
    with pytest.raises(ValueError, match="was begun with casefold=False, and not with casefold=True"):
        silently(NaturalQuestions(str(questions / "train"), str(questions / "dev"), casefold=True), built)
    write_lines(questions / "train" / "b.jsonl.gz", few_questions(2, 50))
    with pytest.raises(ValueError, match=r"was begun with files=.*, and not with files="):
        silently(source(questions), built)
    assert read_manifest(built)["shards"]


@pytest.mark.parametrize("option", ["processes", "records_per_shard"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_numbers_without_meaning(questions, tmp_path, option, value):
    with pytest.raises(ValueError, match=f"{option}={value!r}; give a whole number from 1"):
        silently(source(questions), tmp_path / "built", **{option: value})
    assert not (tmp_path / "built").exists()


def test_a_folder_of_someone_else(questions, tmp_path):
    with pytest.raises(ValueError) as err:
        silently(source(questions), questions)
    assert str(err.value) == (
        f"{questions} has files but no plan.json: it was not begun by this builder; name another folder"
    )


def test_files_without_answers(tmp_path):
    nothing = few_questions(1)[0].replace('"start_token": 1, "end_token": 2', '"start_token": -1, "end_token": -1')
    path = write_lines(tmp_path / "a.jsonl", [nothing])
    with pytest.raises(ValueError, match=r"no question in a.jsonl has an answer sentence; are these the right files"):
        silently(NaturalQuestions(train=[path]), tmp_path / "built")
    assert not (tmp_path / "built" / MANIFEST).exists()
    with pytest.raises(ValueError, match="names no files; name at least one to build from"):
        silently(NaturalQuestions(), tmp_path / "other")


def test_memory_does_not_grow_with_the_file(tmp_path):
    code = (
        "import resource, sys; from pyterrier_cascade.datasets.asnq import *\n"
        "before = resource.getrusage(0).ru_maxrss\n"
        "build(NaturalQuestions(train=[sys.argv[1]]), sys.argv[2], verbose=False)\n"
        "print(resource.getrusage(0).ru_maxrss - before)"
    )
    line = json.loads(few_questions(1)[0])
    line["document_html"] = "x" * 1_000_000
    path = write_lines(tmp_path / "big.jsonl.gz", [json.dumps(line)] * 100)
    done = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "built"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 30_000  # kilobytes, of a file of 100 megabytes


def test_squad_shaped_in_several_processes(tmp_path, squad_record):
    for name in ("a", "b"):
        text = json.dumps(squad_record).replace('"id": "', f'"id": "{name}')
        (tmp_path / f"{name}.json").write_text(text)
    paths = [str(tmp_path / f"{name}.json") for name in ("a", "b")]
    one = silently(SquadShaped(paths), tmp_path / "one")
    assert silently(SquadShaped(paths), tmp_path / "two", processes=2).equals(one)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def squad_file(path, names, ids=str, text="Ada founded {}. Nobody knew."):
    """An article about each name, with a question each."""
    data = []
    for name in names:
        qas = [{"id": ids(name), "question": f"who founded {name}", "answers": [{"text": "Ada", "answer_start": 0}]}]
        data.append({"title": f"town {name}", "paragraphs": [{"context": text.format(name), "qas": qas}]})
    path.write_text(json.dumps({"data": data}))
    return path


def test_pages_of_one_article_are_on_one_side(tmp_path):
    """Also where two files have it."""
    paths = [squad_file(tmp_path / f"{name}.json", range(20), lambda n, name=name: f"{name}{n}") for name in "ab"]
    silently(SquadShaped(paths, held_out=0.5), tmp_path / "built")
    splits = [
        pt.get_dataset(f"as2:asnq-like/{split}", folder=str(tmp_path / "built")) for split in ("train", "dev", "test")
    ]
    towns = [{qid[1:] for qid in split.get_topics()["qid"]} for split in splits]
    assert sum(map(len, towns)) == len(set.union(*towns)) == 20 and all(towns)


def test_the_same_questions_in_two_files(tmp_path):
    """As in SQuAD 1.1 and 2.0."""
    paths = [squad_file(tmp_path / f"{name}.json", range(5)) for name in "ab"]
    silently(SquadShaped(paths, held_out=0), tmp_path / "built")
    message = "question id '0' occurs more than once in .*; was it built of two files with the same questions"
    with pytest.raises(ValueError, match=message):
        pt.get_dataset("as2:asnq-like/train", folder=str(tmp_path / "built")).get_topics()


def test_a_folder_is_read_without_what_editors_leave(tmp_path):
    squad_file(tmp_path / "mine.json", range(2))
    squad_file(tmp_path / "mine.json~", range(2))
    assert SquadShaped(str(tmp_path)).paths == (str(tmp_path / "mine.json"),)


def test_a_file_that_was_corrected_is_another(tmp_path):
    """Though it is of the same size."""
    path = squad_file(tmp_path / "a.json", range(3))
    silently(SquadShaped([path], held_out=0), tmp_path / "built")
    squad_file(path, range(3), text="Eva founded {}. Nobody knew.")
    with pytest.raises(ValueError, match=r"was begun with files=.* and not with files="):
        silently(SquadShaped([path], held_out=0), tmp_path / "built")
