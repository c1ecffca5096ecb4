"""Missing libraries name the extra that brings them."""

import re
import sys

import pytest

from pyterrier_cascade.optional import check_installed, require


def test_it_returns_the_first_module():
    assert require("ray", "json", "re", purpose="a pool") is sys.modules["json"]


@pytest.mark.parametrize(
    ("modules", "purpose", "message"),
    [
        (["no_such_module"], "a pool", 'a pool needs no_such_module: pip install "pyterrier_cascade[ray]"'),
        (["no_such.inner", "json"], "plots", 'plots need no_such.inner: pip install "pyterrier_cascade[ray]"'),
        (["one_missing", "two_missing"], "a pool", "a pool needs one_missing and two_missing: pip install"),
    ],
)
def test_what_is_missing(modules, purpose, message):
    with pytest.raises(ImportError, match=re.escape(message)):
        require("ray", *modules, purpose=purpose)


def test_a_module_with_a_fault_of_its_own_says_so(tmp_path, monkeypatch):
    (tmp_path / "faulty_module.py").write_text("import another_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="No module named 'another_that_is_missing'"):
        require("ray", "faulty_module", purpose="a pool")


def test_modules_are_looked_for_without_importing_them(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    check_installed("ray", "slow_module", purpose="a pool")
    with pytest.raises(ImportError, match="a pool needs no_such_module: pip install"):
        check_installed("ray", "slow_module", "no_such_module", purpose="a pool")
