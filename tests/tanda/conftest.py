import pandas as pd
import pytest

from pyterrier_cascade import CrossEncoder
from tests import tiny


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("tanda") / "encoder", layers=3, outputs=None)


@pytest.fixture
def ranker(encoder):
    return CrossEncoder.from_pretrained(encoder)


@pytest.fixture
def trainings(monkeypatch) -> list:
    """What cross-encoders are trained on and how, in place of training."""
    seen = []
    monkeypatch.setattr(CrossEncoder, "train", lambda self, train, *dev: seen.append((train, self.training)))
    monkeypatch.setattr(CrossEncoder, "history", pd.DataFrame({"epoch": [1.0], "dev_map": [0.5]}))
    return seen
