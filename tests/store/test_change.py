"""Documents that are added, replaced and deleted; every change counts as a whole or not at all."""

import os
import random
import shutil
import signal
import sys
import time

import numpy as np
import pandas as pd
import pytest

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.folder import CHANGES
from pyterrier_cascade.store.store import DocumentStore
from tests.store.kills import die_after
from tests.store.made_up import build, content, corpus, encode, in_memory, right, started, states_of

tmp_path = pytest.fixture(in_memory)
posix = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed the POSIX way")

NEW = [{"docno": f"n{i}", "text": "town " * (i + 1)} for i in range(7)]
CHANGED = [{"docno": docno, "text": "another harbour " * 5} for docno in ("d1", "d11", "d22")]
GONE = ["d0", "d4", "d12"]


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setattr(publish, "sync", lambda path: None)


@pytest.fixture(params=["fp16", "int8"])
def store(request, tmp_path):
    return build(tmp_path / "store", dtype=request.param)


def added(documents=None):
    return [*(documents or corpus()), *NEW]


def replaced(documents=None):
    changed = {document["docno"]: document for document in CHANGED}
    return [changed.get(document["docno"], document) for document in documents or corpus()]


def deleted(documents=None):
    return [document for document in documents or corpus() if document["docno"] not in GONE]


OPERATIONS = {
    "add": (lambda store: store.add(NEW, encode, batch_size=2), added),
    "replace": (lambda store: store.replace(CHANGED, encode), replaced),
    "delete": (lambda store: store.delete(GONE), deleted),
    "compact": (lambda store: store.compact(), lambda: deleted(replaced(added()))),
}


def prepared(folder, operation):
    """A store before the operation; and the documents that it then has."""
    store = build(folder)
    if operation == "compact":
        store.add(NEW, encode).replace(CHANGED, encode).delete(GONE)
        return store, deleted(replaced(added()))
    return store, corpus()


def holds(store, documents):
    """Whether a store has these documents and no others, each as it should be."""
    names = {document["docno"] for document in documents}
    assert right(store, documents) == len(documents) == len(store) == len(store.documents)
    assert set(store.docnos(store.documents)) == names
    assert (store.find([docno for docno in (*GONE, "n0", "nobody") if docno not in names]) == -1).all()
    lengths = [states_of(document["text"])[1] for document in documents]
    assert (store.n_entries, store.n_tokens) == (sum(map(len, lengths)), sum(int(one.sum()) for one in lengths))
    assert store.complete and store.missing == []
    store.verify()
    return True


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_change_is_seen_by_this_object_and_by_new_ones(tmp_path, operation):
    store, before = prepared(tmp_path / "store", operation)
    reader = DocumentStore(store.path)
    assert right(reader, before) == len(before)
    change, after = OPERATIONS[operation]
    assert change(store) is store
    assert holds(store, after()) and holds(DocumentStore(store.path), after())
    assert holds(reader.refresh(), after())
    assert not [path.name for path in store.path.iterdir() if path.name.startswith((".tmp", ".writer"))]


def test_one_change_after_another(store):
    store.add(NEW, encode).replace(CHANGED, encode).delete(GONE)
    assert holds(store, deleted(replaced(added())))
    size = sum(map(len, content(store.path).values()))
    store.compact()
    assert holds(store, deleted(replaced(added()))) and sum(map(len, content(store.path).values())) < size
    store.delete(["n6", "d22"]).add([{"docno": "d0", "text": "back again"}], encode).replace(NEW[:1], encode)
    again = [*deleted(replaced(added())), {"docno": "d0", "text": "back again"}]
    assert holds(store, [document for document in again if document["docno"] not in ("n6", "d22")])


def test_documents_that_are_untouched_keep_their_numbers(store):
    names = [document["docno"] for document in deleted()]
    before = store.find(names)
    store.add(NEW, encode).delete(GONE)
    assert np.array_equal(store.find(names), before)
    gone = DocumentStore(build(store.path.parent / "other").path).find(["d4"])
    for read in (store.entries, store.docnos, store.read):
        with pytest.raises(IndexError, match=f"there is no {gone[0]} in the cache; use the numbers that find returns"):
            read(gone)


def test_a_reader_that_looked_before_reads_on_until_compaction(tmp_path):
    store = build(tmp_path / "store")
    reader = DocumentStore(store.path)
    numbers = reader.find(["d0", "d1"])
    store.replace(CHANGED, encode).delete(GONE)
    assert right(reader, corpus()) == 23 and np.array_equal(reader.find(["d0", "d1"]), numbers)
    fresh = DocumentStore(store.path)
    assert len(fresh) == 20
    store.compact()
    with pytest.raises(ValueError, match=r"store' was changed since this cache looked; call refresh\(\) or open it"):
        right(reader, corpus())
    with pytest.raises(ValueError, match=r"was changed since this cache looked; call refresh\(\)"):
        right(fresh, deleted(replaced()))
    assert holds(fresh.refresh(), deleted(replaced()))


def test_compaction_writes_only_what_it_must(tmp_path):
    store = build(tmp_path / "store", corpus(25))
    before = content(store.path)
    assert content(store.compact().path).items() >= before.items()
    store.delete(["d6"]).compact()
    after = content(store.path)
    kept = {name: data for name, data in before.items() if name.startswith("shard-") and "00001" not in name}
    assert after.items() >= kept.items() and not any(name.startswith("shard-00001") for name in after)
    again = content(store.compact().path)
    assert again == after
    assert holds(store, [document for document in corpus(25) if document["docno"] != "d6"])


def test_everything_can_be_deleted(tmp_path):
    store = build(tmp_path / "store")
    store.delete(list(store.docnos(store.documents)))
    assert len(store) == 0 and holds(store, [])
    assert holds(store.compact(), [])
    assert holds(store.add(NEW, encode), NEW)


@pytest.mark.parametrize("documents", [[], iter([]), pd.DataFrame({"docno": [], "text": []})])
def test_no_documents_are_no_change(tmp_path, documents):
    store = build(tmp_path / "store")
    assert holds(store.add(documents, encode), corpus()) and holds(store.delete([]), corpus())
    assert not (store.path / CHANGES).exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda store: store.add([*NEW, corpus()[2]], encode), ValueError, "docno 'd2' is in .* already; use replace"),
        (lambda store: store.add(NEW + NEW[:1], encode), ValueError, "docno 'n0' is given more than once; give each"),
        (lambda store: store.replace(CHANGED + NEW, encode), KeyError, "docno .*n0.*n1.* is not in .*; use add"),
        (lambda store: store.replace(CHANGED[:1] * 2, encode), ValueError, "docno 'd1' is given more than once"),
        (lambda store: store.delete([*GONE, "x", "y"]), KeyError, "docno 'x', 'y' is not in .*leave the others out"),
        (lambda store: store.delete(["d0", "d0"]), ValueError, "docno 'd0' is given more than once"),
        (lambda store: store.delete("d0"), TypeError, "'d0' is a single text; give a list of docnos"),
        (lambda store: store.find("d0"), TypeError, "'d0' is a single text; give a list of docnos"),
        (lambda store: store.add("d0", encode), TypeError, "'d0' is a single text; give a list of dictionaries"),
        (lambda store: store.add(NEW[0], encode), TypeError, "is a single document; give a list of documents"),
        (lambda store: store.add(NEW), ValueError, "the store knows no model; give encode, the function that encoded"),
        (lambda store: store.add(NEW, encode, batch_size=0), ValueError, "batch_size is 0; give a whole number"),
        (lambda store: store.add([*NEW, {"docno": "z"}], encode), KeyError, "document 7 has no 'text', only 'docno'"),
        (lambda store: store.add(NEW, lambda texts: 1 / 0), ZeroDivisionError, "division"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(tmp_path, change, error, message):
    store = build(tmp_path / "store")
    before = content(store.path)
    with pytest.raises(error, match=message):
        change(store)
    after = content(store.path)
    after.pop(".changing", None)
    assert after == before and holds(store, corpus())


def test_an_unfinished_store_is_not_changed(tmp_path):
    store = build(tmp_path / "store", shards=[0, 1])
    with pytest.raises(ValueError, match="is not complete; build it to its end before you change it"):
        store.delete(["d0"])
    build(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "shard-00002")
    with pytest.raises(ValueError, match="is not complete; build it to its end"):
        DocumentStore(store.path).add(NEW, encode)


def test_the_same_build_still_finds_its_shards(tmp_path):
    store = build(tmp_path / "store")
    store.add(NEW, encode).delete(GONE)
    assert holds(build(tmp_path / "store", encode=None), deleted(added()))
    shutil.rmtree(tmp_path / "store" / "shard-00003")
    assert not DocumentStore(store.path).complete
    assert holds(build(tmp_path / "store"), deleted(added()))
    store.refresh().compact()
    assert holds(build(tmp_path / "store", encode=None), deleted(added()))


def test_an_added_shard_that_is_lost_is_added_again(tmp_path):
    store = build(tmp_path / "store").add(NEW, encode)
    path = store.path / "added-00005" / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"added-00005/tokens.bin' is missing or not of its .* added again"):
        right(DocumentStore(store.path), NEW)
    shutil.rmtree(path.parent)
    store = DocumentStore(store.path)
    assert store.missing == [5] and not store.complete and right(store, corpus() + NEW) == 25
    with pytest.raises(ValueError, match="is not sound: added-00005 is missing"):
        store.verify()
    assert holds(store.add(NEW[:5], encode), added())


@pytest.mark.parametrize("name", [CHANGES, "index"])
def test_a_damaged_record_of_changes_is_refused(tmp_path, name):
    store = build(tmp_path / "store").delete(GONE)
    path = store.path / CHANGES if name == CHANGES else next(store.path.glob("index-*")) / "dead.bin"
    data = bytearray(path.read_bytes())
    data[-9 if name == CHANGES else 0] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        DocumentStore(store.path).find(["d1"])
    with pytest.raises(ValueError, match="is damaged"):
        DocumentStore(store.path).verify()


@posix
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_each_step_leaves_the_documents_before_or_after(tmp_path, operation, stride):
    change, after = OPERATIONS[operation]
    template, before = prepared(tmp_path / "template", operation)
    step, killed, seen = 0, True, set()
    while killed:
        folder = shutil.copytree(template.path, tmp_path / f"store{step}")
        process = started(dies_at, lambda folder=folder: change(DocumentStore(folder)), step)
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        assert killed or process.exitcode == 0
        store = DocumentStore(folder)
        done = (folder / CHANGES).exists() and store.folder.changes != template.folder.changes
        seen.add(done)
        assert holds(store, after() if done else before)
        if not done:
            change(store)
        # Another change works, and removes what the killed one left.
        store.delete(["d13"])
        assert holds(store, [document for document in after() if document["docno"] != "d13"])
        names = {path.name.split("-")[0] for path in folder.iterdir()}
        assert names <= {".changing", ".lock", "added", "changes.json", "end.json", "index", "pt_meta.json", "shard"}
        assert len(list(folder.glob("index-*"))) == 1
        shutil.rmtree(folder)
        step += stride
    assert seen == {False, True}


def dies_at(work, step):
    die_after(step)
    work()


@posix
@pytest.mark.parametrize("n_kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_kills_at_random_moments(tmp_path, n_kills):
    chance = random.Random(os.getpid())
    store = build(tmp_path / "store", shard_size=3)
    states = {tuple(sorted(store.docnos(store.documents)))}

    def work():
        store = DocumentStore(tmp_path / "store")
        for round in range(100):
            new = [{"docno": f"r{round}-{i}", "text": f"ship {i}"} for i in range(4)]
            store.add(new, encode, batch_size=1)
            time.sleep(0.001)
            store.replace(new[:2], encode).delete([document["docno"] for document in new]).compact()

    for _ in range(n_kills):
        process = started(work)
        process.join(chance.uniform(0.01, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        store = DocumentStore(tmp_path / "store")
        assert right(store, corpus()) == 23
        there = sorted(docno for docno in store.docnos(store.documents) if docno.startswith("r"))
        states.add(tuple(there))
        assert len(there) in (0, 4) and len({docno.split("-")[0] for docno in there}) <= 1
        store.verify()
        if there:
            store.delete(there)
    assert right(store.compact(), corpus()) == len(store) == 23


@posix
def test_changes_of_two_processes_follow_one_another(tmp_path):
    store = build(tmp_path / "store")

    def slowly(texts):
        time.sleep(0.05)
        return encode(texts)

    other = started(lambda: DocumentStore(store.path).add(NEW[:4], slowly, batch_size=1))
    time.sleep(0.02)
    store.add(NEW[4:], slowly, batch_size=1)
    other.join()
    assert other.exitcode == 0 and holds(store.refresh(), added())


@posix
def test_readers_meet_whole_states_while_another_process_changes(tmp_path):
    store = build(tmp_path / "store")

    def work():
        store = DocumentStore(tmp_path / "store")
        for _ in range(5):
            store.add(NEW, encode).delete([document["docno"] for document in NEW]).compact()

    process, seen = started(work), set()
    while process.is_alive():
        reader = DocumentStore(store.path)
        n = len(reader)
        seen.add(n)
        assert (reader.find([document["docno"] for document in NEW]) >= 0).sum() == n - 23
        try:
            assert right(reader, added()) == n
        except ValueError as error:
            assert "call refresh() or open it again" in str(error)
    process.join()
    assert process.exitcode == 0 and seen <= {23, 30}


def test_merged_stores_leave_the_deleted_documents_out(tmp_path, store):
    store.delete(GONE).replace(CHANGED, encode)
    other = build(tmp_path / "other", NEW, dtype=store.dtype)
    merged = DocumentStore.merge([store, other.path], tmp_path / "merged")
    assert holds(merged, deleted(replaced(added())))
    assert not (merged.path / CHANGES).exists() and not list(merged.path.glob("added-*"))
    assert holds(merged.delete(["n0"]), [one for one in deleted(replaced(added())) if one["docno"] != "n0"])
    lost = build(tmp_path / "lost", NEW, dtype=store.dtype).add([{"docno": "z", "text": "z"}], encode)
    shutil.rmtree(next(lost.path.glob("added-*")))
    with pytest.raises(ValueError, match="lost' was changed and is not complete; add its missing documents again"):
        DocumentStore.merge([lost], tmp_path / "never")
