from pathlib import Path

import pytest

from pyterrier_cascade import demo


def test_the_named_encoder_comes_first():
    assert demo.small_encoder("mine") == "mine"


def test_the_installed_package_comes_second():
    pytest.importorskip(demo.PACKAGE)
    assert (Path(demo.small_encoder()) / "model.safetensors").exists()


def test_the_hub_comes_last(monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert demo.small_encoder() == "sentence-transformers/all-MiniLM-L6-v2"
