from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.store.user_cache import user_cache


def test_it_is_in_the_home_of_pyterrier(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "home"))
    assert user_cache("wikiqa", "a") == tmp_path / "home" / "pyterrier_cascade" / "wikiqa" / "a"


def test_without_the_variable_it_is_below_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTERRIER_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache("openvino") == tmp_path / ".pyterrier" / "pyterrier_cascade" / "openvino"


def test_files_made_of_a_model_on_the_hub_lie_beside_the_downloads(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert Checkpoint(None, "some/model").cache("openvino") == user_cache("openvino")
