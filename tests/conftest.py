import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PT_TEST_TRANSFORMER_REPORTS"] = "0"
# Tiny models gain nothing from threads, and on a busy machine wait for them at every layer.
os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import pandas as pd
import pytest

from tests import network, tiny

network.install()

# A busy machine is slow, which proves nothing.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("any machine")

PROJECT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("PTC_SHARED", PROJECT.parent / "shared"))


@pytest.fixture(autouse=True)
def no_network():
    """Fails a test that asks for another machine."""
    yield
    network.fail_if_refused()


def _shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs shared data: {path} is missing (set PTC_SHARED)")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    return _shared("data")


@pytest.fixture(scope="session")
def shared_models() -> Path:
    return _shared("models")


@pytest.fixture(scope="session")
def shared_java() -> Path:
    return _shared("java")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> str:
    return tiny.save(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture
def results() -> pd.DataFrame:
    """Two interleaved queries, unsorted, under an index that repeats."""
    return pd.DataFrame(
        {
            "qid": ["2", "1", "2", "1", "1"],
            "query": ["who founded the town", "what ship", "who founded the town", "what ship", "what ship"],
            "docno": ["d3", "d1", "d1", "d2", "d4"],
            "text": ["the town was founded in 1802", "a ship", "nothing", "the ship launched", "who is it"],
            "score": [5.0, 9.0, 4.0, 7.0, 7.0],
            "rank": [0, 0, 1, 1, 2],
            "extra": [0.1, 0.2, 0.3, 0.4, 0.5],
        },
        index=[7, 7, 3, 3, 7],
    )
