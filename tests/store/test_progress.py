import pytest

from pyterrier_cascade.store import progress as module
from pyterrier_cascade.store.progress import progress


def test_without_verbose_there_is_no_bar(monkeypatch, capfd):
    """Not even a disabled one, whose lock forked processes share."""
    monkeypatch.setattr(module.pt, "tqdm", None)
    with progress("counting", "things", False, 3) as done:
        done(3)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("total", [3, None])
def test_a_bar(capfd, total):
    with progress("counting", "things", True, total) as done:
        done(3)
    said = "".join(capfd.readouterr())
    assert "counting: " in said and ("3/3" if total else "3 things") in said
