"""A damaged document cache: refused by name, never a wrong state."""

import random
import re
import shutil

import numpy as np
import pytest

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.publish import sha256
from pyterrier_cascade.store.store import DocumentStore
from tests.store.made_up import META, build, content, corpus, in_memory, right

tmp_path = pytest.fixture(in_memory)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setattr(publish, "sync", lambda path: None)


@pytest.fixture(scope="module", params=["fp16", "int8"])
def sound(request, tmp_path_factory):
    return build(tmp_path_factory.mktemp("sound") / "cache", dtype=request.param).path


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "cache")


@pytest.fixture
def small(tmp_path):
    return build(tmp_path / "small", corpus(7), dtype="int8").path


def read_all(folder, n=23):
    """How many documents are right, and what is said of the others; a wrong state fails."""
    said, n_right = [], 0
    try:
        cache = DocumentStore(folder)
    except (ValueError, OSError) as error:
        return 0, [str(error)] * n
    for document in corpus(n):
        try:
            n_right += right(cache, [document])
        except (ValueError, OSError) as error:
            said.append(str(error))
    return n_right, said


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_flipped_byte_is_refused_or_does_no_harm(small, every):
    chance = random.Random(1)
    for name, before in content(small).items():
        places = range(len(before))
        if not every:
            places = sorted({*places[:1], *places[-1:], *chance.sample(places, min(1, len(places)))})
        for place in places:
            changed = bytearray(before)
            changed[place] ^= chance.randrange(1, 256)
            (small / name).write_bytes(changed)
            where = f"byte {place} of {name}"
            with pytest.raises((ValueError, OSError)) as caught:
                DocumentStore(small).verify()
            part = name.split("/")[0]
            assert part in str(caught.value), where
            n_right, said = read_all(small, 7)
            assert n_right + len(said) == 7, where
            assert all(str(small) in one for one in said), (where, said)
            if name.endswith(("tokens.bin", "scales.bin")):
                assert len(said) == 1 and "is not what was written; verify() says what is damaged" in said[0], where
        (small / name).write_bytes(before)
    assert read_all(small, 7) == (7, [])
    DocumentStore(small).verify()


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_among_the_hashes_makes_no_document_missing(folder, stride):
    path = next(folder.glob("index-*")) / "hashes.bin"
    before, documents = path.read_bytes(), corpus()
    for place in range(0, len(before), stride):
        changed = bytearray(before)
        changed[place] ^= 128
        path.write_bytes(changed)
        cache = DocumentStore(folder)
        refused = 0
        for document in documents:
            try:
                assert right(cache, [document]) == 1
            except ValueError as error:
                refused += "is damaged; delete that folder, it is made again from the shards" in str(error)
        assert refused > 0
    shutil.rmtree(path.parent)
    assert right(DocumentStore(folder), documents) == 23


def test_a_catalog_is_made_of_sound_files_only(folder):
    shutil.rmtree(next(folder.glob("index-*")))
    for path in (folder / "shard-00001").glob("*.npy"):
        before = path.read_bytes()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(
            ValueError, match=re.escape(f"{str(path)!r} is damaged: it is not what was written; delete")
        ):
            DocumentStore(folder).find(["d1"])
        path.write_bytes(before)
    assert right(DocumentStore(folder), corpus()) == 23


@pytest.mark.parametrize("shifts", [(0, -1), (0, 1), (1, 0), (-1, 0), (1, 1), (-1, -1)])
def test_a_catalog_that_mixes_up_passages(folder, shifts):
    mix_up(folder, shifts, at_least=3)


def test_a_catalog_that_mixes_up_documents(folder):
    mix_up(folder, (1, 1), at_least=1)


def mix_up(folder, shifts, at_least):
    """Moves the ends of a document's entries, and sees it refused."""
    cache = DocumentStore(folder)
    n_entries = cache.entries(cache.documents)[1]
    row = next(row for row in range(20) if row % 5 in (1, 2, 3) and n_entries[row] >= at_least)
    assert at_least > 1 or n_entries[row : row + 2].tolist() == [1, 1]
    path = next(folder.glob("index-*")) / "entries.bin"
    entries = np.fromfile(path, "<u8")
    entries[[row, row + 1]] += np.array(shifts).astype("<u8")
    entries.tofile(path)
    docno = corpus()[row]["docno"]
    with pytest.raises(ValueError, match=f"document '{docno}' in .* is not what was written"):
        DocumentStore(folder).read(cache.find([docno]))


def test_every_cut_file_is_refused(small):
    for name, before in content(small).items():
        for size in (0, len(before) // 2, len(before) - 1) if before else ():
            (small / name).write_bytes(before[:size])
            with pytest.raises((ValueError, OSError), match=re.escape(name.split("/")[0])):
                DocumentStore(small).verify()
            n_right, said = read_all(small, 7)
            assert n_right + len(said) == 7 and all(str(small) in one for one in said)
            if name.startswith("shard-"):
                assert said, name
        (small / name).write_bytes(before)
    DocumentStore(small).verify()


def test_every_missing_file_is_refused_or_made_again(small):
    for name, before in content(small).items():
        (small / name).unlink()
        n_right, said = read_all(small, 7)
        assert n_right + len(said) == 7 and all(str(small) in one for one in said)
        if name.startswith("shard-"):
            assert said, name
            with pytest.raises(ValueError, match=re.escape(name) + "' is missing or"):
                DocumentStore(small).verify()
        (small / name).write_bytes(before)
    DocumentStore(small).verify()


def test_a_file_that_is_cut_while_it_is_in_use(folder):
    cache = DocumentStore(folder)
    assert right(cache, corpus()) == 23
    path = folder / "shard-00001" / "tokens.bin"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"shard-00001/tokens.bin' ends too early; delete that folder and build the"):
        right(cache, corpus())
    assert right(cache, corpus()[:5] + corpus()[10:]) == 18


def test_a_damaged_shard_is_one_shard_lost(folder):
    before = content(folder)
    path = folder / "shard-00002" / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    message = "shard-00002/tokens.bin' is missing or not of its .* bytes; delete that folder and build the cache again"
    with pytest.raises(ValueError, match=message):
        right(DocumentStore(folder), corpus())
    with pytest.raises(ValueError, match=message):
        build(folder, dtype=DocumentStore(folder).dtype)
    shutil.rmtree(path.parent)
    gap = DocumentStore(folder)
    assert right(gap, corpus()) == 18 and gap.missing == [2] and not gap.complete
    with pytest.raises(ValueError, match="is not sound: shard-00002 is missing"):
        gap.verify()
    encoded = []

    def watched(texts):
        from tests.store.made_up import encode

        encoded.extend(texts)
        return encode(texts)

    build(folder, dtype=gap.dtype, encode=watched)
    assert len(encoded) == 5 and content(folder) == before


def test_a_shard_that_goes_while_it_is_in_use(folder):
    cache = DocumentStore(folder)
    assert right(cache, corpus()[:5]) == 5
    shutil.rmtree(folder / "shard-00003")
    with pytest.raises(FileNotFoundError, match="shard-00003' is missing; build the cache again, which does it only"):
        right(cache, corpus())
    assert right(cache, corpus()[:15]) == 15


def test_shards_of_other_models_are_refused(folder, tmp_path):
    dtype = DocumentStore(folder).dtype
    other = "int8" if dtype == "fp16" else "fp16"
    for changed, said in (
        ({"meta": META | {"fingerprint": "ffff"}}, "has fingerprint 'ffff', the cache '0123456789abcdef'"),
        ({"dtype": other}, f"has dtype '{other}', the cache '{dtype}'"),
    ):
        stranger = build(tmp_path / said[:20], **({"dtype": dtype} | changed)).path
        for name in ("shard-00001", "shard-00007"):
            there = folder / name
            kept = there.rename(tmp_path / "kept") if there.exists() else None
            shutil.copytree(stranger / "shard-00001", there)
            message = f"{name}' {said}; a shard of another cache\\? Take it away, and use merge to join"
            with pytest.raises(ValueError, match=message):
                right(DocumentStore(folder), corpus())
            with pytest.raises(ValueError, match=message):
                DocumentStore(folder).verify()
            shutil.rmtree(there)
            if kept:
                kept.rename(there)
    DocumentStore(folder).verify()


def test_a_shard_that_was_exchanged(folder, tmp_path):
    dtype = DocumentStore(folder).dtype
    open_before = DocumentStore(folder)
    assert len(open_before) == 23
    changed = [{**document, "text": "other"} for document in corpus()]
    shutil.rmtree(folder / "shard-00001")
    shutil.copytree(build(tmp_path / "other", changed, dtype=dtype).path / "shard-00001", folder / "shard-00001")
    message = r"shard-00001' was replaced since this cache looked; call refresh\(\) or open it again"
    for cache in (open_before, DocumentStore(folder)):
        with pytest.raises(ValueError, match=message):
            right(cache, corpus())


def test_a_shard_too_many(folder):
    shutil.copytree(folder / "shard-00001", folder / "shard-00005")
    with pytest.raises(ValueError, match="is not sound: shard-00005 is one too many"):
        DocumentStore(folder).verify()
    with pytest.raises(
        ValueError, match="docno 'd5' and 4 more docnos given to more than one document, in shard-00001"
    ):
        DocumentStore(folder).find(["d5"])


def test_a_shard_that_was_written_wrongly(folder):
    path = folder / "shard-00000"
    entries = np.load(path / "entries.npy")
    np.save(path / "entries.npy", entries[::-1])
    fields = publish.read_sealed(path / "shard.json")
    fields["files"]["entries.npy"]["sha256"] = sha256(path / "entries.npy")
    (path / "shard.json").write_bytes(publish.sealed(fields))
    with pytest.raises(ValueError, match=r"the counts and offsets of .*shard-00000' contradict each other"):
        DocumentStore(folder).verify()


def test_verify_names_all(folder):
    for name in ("shard-00000/tokens.bin", "shard-00002/checks.npy"):
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)
    shutil.rmtree(folder / "shard-00001")
    wanted = (
        f"the cache at {str(folder)!r} is not sound: {str(folder / 'shard-00000/tokens.bin')!r} is damaged: it is not "
        f"what was written; {str(folder / 'shard-00002/checks.npy')!r} is damaged: it is not what was written; "
        "shard-00001 is missing"
    )
    with pytest.raises(ValueError) as caught:
        DocumentStore(folder).verify()
    assert str(caught.value) == wanted


def test_verify_shows_progress_if_asked(folder, capfd):
    DocumentStore(folder).verify()
    assert capfd.readouterr() == ("", "")
    DocumentStore(folder).verify(verbose=True)
    assert "verifying: 100%" in "".join(capfd.readouterr())
