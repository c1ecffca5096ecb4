"""The contract of a loaded encoder with heads."""

import pytest

from pyterrier_cascade.crossencoder.model import load
from tests import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(tiny.save(tmp_path_factory.mktemp("pair") / "bert", layers=3))


def test_describe(model):
    assert model.describe() == {
        "encoder": "bert", "layers": 3, "full_layers": 3, "width": 32, "heads": [3], "pooling": "cls", "tokens": 512,
    }  # fmt: skip
    assert model.head_layers == (3,) and model.executors is model.executors


def test_a_truncated_encoder_knows_its_full_depth(tmp_path):
    """CT-34: relative cost is counted by the layers of the full encoder."""
    truncated = load(tiny.save(tmp_path, layers=3), layers=2)
    assert (truncated.layers, truncated.full_layers, truncated.head_layers) == (2, 3, (2,))


@pytest.mark.parametrize(
    ("family", "positions", "tokenizers", "limit", "default"),
    [
        ("bert", 64, 512, 64, 64),
        ("bert", 512, 48, 512, 48),
        ("roberta", 66, 512, 64, 64),
        ("bert", 600, int(1e30), 600, 512),
    ],
)
def test_the_positions_are_a_limit_and_the_tokenizers_number_is_a_default(
    tmp_path, family, positions, tokenizers, limit, default
):
    model = load(tiny.save(tmp_path, family, max_position_embeddings=positions))
    model.tokenizer.model_max_length = tokenizers
    assert (model.length_limit, model.default_length) == (limit, default) and model.describe()["tokens"] == limit
