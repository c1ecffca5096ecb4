"""One file of what is written is damaged: the answers are those of before, or an error names the file; nothing else."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.publish import Damaged
from tests.standing.written import THINGS, Thing
from tests.store.made_up import in_memory

tmp_path = pytest.fixture(in_memory)
KINDS = ("cut", "cut by one", "flipped", "emptied", "removed", "longer", "swapped", "swapped folders")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(publish, "sync", lambda path: None)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def damages(folder: Path, n_flips: int | None, chance: random.Random) -> Iterator[tuple[str, Path, object]]:
    """Yields the kind, the file or folder, and what each damage needs besides: a place, or the other one of a swap.

    ``n_flips`` bytes of each file are flipped; all unless given.
    """
    there = files(folder)
    for path in there:
        yield from ((kind, path, None) for kind in KINDS[:6] if kind != "flipped")
        places = range(path.stat().st_size)
        if n_flips is not None:
            places = chance.sample(places, min(n_flips, len(places)))
        yield from (("flipped", path, place) for place in places)
    pairs = [(one, other) for one in there for other in there if one < other and one.suffix == other.suffix]
    yield from (("swapped", *pair) for pair in (chance.sample(pairs, min(len(pairs), 12)) if n_flips else pairs))
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    yield from (("swapped folders", *pair) for pair in itertools.pairwise(inner))
    yield from (("removed", path, None) for path in inner)


def damage(kind: str, path: Path, more) -> None:
    if kind.startswith("swapped"):
        aside = path.with_name("aside")
        path.rename(aside)
        more.rename(path)
        aside.rename(more)
    elif kind == "removed":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        content = bytearray(path.read_bytes())
        if kind == "flipped":
            content[more] ^= 1 << (more % 8)
        cuts = {
            "cut": content[: len(content) // 2],
            "cut by one": content[:-1],
            "emptied": b"",
            "longer": content + b"0",
        }
        path.unlink()
        path.write_bytes(cuts.get(kind, content))


def outcomes(thing: Thing, folder: Path, n_flips: int | None, seed: int) -> Counter:
    """How many damages of each kind changed nothing, and how many were errors; all others fail."""
    sound, found = folder / "sound", Counter()
    thing.write(sound)
    expected = thing.read(sound)
    for number, (kind, path, more) in enumerate(damages(sound, n_flips, random.Random(seed))):
        # Each under a path of its own, because readers keep what they have read of a path.
        copy = shutil.copytree(sound, folder / f"damaged-{number}")
        there = copy / path.relative_to(sound)
        damage(kind, there, copy / more.relative_to(sound) if isinstance(more, Path) else more)
        where = f"{kind}: {path.relative_to(sound)} {more}"
        try:
            answers = thing.read(copy)
        except Exception as error:
            assert type(error) in (Damaged, FileNotFoundError, ValueError), f"{where}: {error!r}"
            assert str(copy) in str(error) and len(str(error).replace(str(copy), "")) > 40, f"{where}: {error}"
            found[kind, type(error).__name__] += 1
        else:
            assert answers == expected, where
            found[kind, "as before"] += 1
        shutil.rmtree(copy)
    return found


def check(name: str, found: Counter) -> None:
    by_kind = Counter(kind for kind, _ in found.elements())
    assert set(by_kind) >= set(KINDS[:7]), by_kind
    noticed = sum(number for (_, outcome), number in found.items() if outcome != "as before")
    # Graphs are made again.
    assert noticed == 0 if name == "graphs" else noticed > 0.5 * found.total()
    print(f"{name}: {found.total()} damages, {noticed} errors")


@pytest.mark.parametrize("name", THINGS)
def test_a_damage_changes_no_answer(name, tmp_path):
    if name == "graphs":
        pytest.importorskip("openvino", reason="the extra [openvino] is not installed")
    check(name, outcomes(THINGS[name], tmp_path, n_flips=2, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", THINGS)
def test_every_flipped_byte_and_every_swap_changes_no_answer(name, tmp_path):
    """But some bytes of a cache, all of which ``tests/store/test_verify.py`` flips."""
    if name == "graphs":
        pytest.importorskip("openvino", reason="the extra [openvino] is not installed")
    check(name, outcomes(THINGS[name], tmp_path, n_flips=20 if name == "cache" else None, seed=2))
