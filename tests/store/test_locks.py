import errno
import os
import threading
import time

import pytest

from pyterrier_cascade.store import locks


def test_a_lock_is_held_by_one_and_waited_for(tmp_path):
    path, order = tmp_path / ".lock", []
    assert locks.abandoned(path)

    def second():
        with locks.alone(path):
            order.append("second")

    with locks.alone(path):
        assert locks.hold(path) is None and not locks.abandoned(path)
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"] and locks.abandoned(path)


def test_looking_whether_a_lock_is_held_makes_no_file(tmp_path):
    assert locks.abandoned(tmp_path / "nobody") and not (tmp_path / "nobody").exists()


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be removed")
def test_a_lock_on_a_removed_file_is_taken_again(tmp_path, monkeypatch):
    """Another process may remove the file between the opening and the locking."""
    path, take = tmp_path / "lock", locks._take
    removed = iter([True])

    def removing(file):
        take(file)
        if next(removed, False):
            path.unlink()

    monkeypatch.setattr(locks, "_take", removing)
    with locks.hold(path):
        monkeypatch.setattr(locks, "_take", take)
        assert path.exists() and locks.hold(path) is None


def test_without_locks_everybody_gets_them_and_nobody_counts_as_gone(tmp_path, monkeypatch):
    def unsupported(file):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(locks, "_take", unsupported)
    with locks.hold(tmp_path / "lock"), locks.hold(tmp_path / "lock"):
        assert not locks.abandoned(tmp_path / "lock")
