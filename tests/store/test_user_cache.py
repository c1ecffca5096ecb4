from pyterrier_cascade.store.user_cache import user_cache


def test_it_is_in_the_home_of_pyterrier(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "home"))
    assert user_cache("wikiqa", "a") == tmp_path / "home" / "pyterrier_cascade" / "wikiqa" / "a"


def test_without_the_variable_it_is_below_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTERRIER_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache("openvino") == tmp_path / ".pyterrier" / "pyterrier_cascade" / "openvino"
