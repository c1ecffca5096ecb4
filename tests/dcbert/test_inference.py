import warnings

import pytest

from pyterrier_cascade import DCBERT
from pyterrier_cascade.model import LoadedModel, TrainedOn
from tests import tiny


def test_it_keeps_the_contract_of_a_loaded_model(dcbert):
    model = dcbert.model.loaded
    assert isinstance(model, LoadedModel) and model.untrained is None and model.executors is None
    assert model.describe() == {
        "encoder": "bert",
        "layers": 3,
        "width": 32,
        "lower_layers": 3,
        "joint_layers": 2,
        "variant": "transformer",
        "tied": False,
        "head": "late",
        "tokens": model.length_limit,
        "trained_on": TrainedOn(1, 2, 1, "-").to_config(),
        "document_fingerprint": dcbert.document_fingerprint(),
    }


def test_the_document_fingerprint_is_that_of_the_settings(dcbert):
    model = dcbert.model.loaded
    prints = {model.document_fingerprint(), dcbert(passages="max").document_fingerprint()}
    prints |= {dcbert(document_length=20).document_fingerprint(), dcbert(precision="bf16").document_fingerprint()}
    assert len(prints) == 4 and dcbert(interaction="late", verbose=True).document_fingerprint() in prints


@pytest.mark.parametrize(("query", "document"), [(None, None), (10, None), (None, 20), (10, 20)])
def test_lengths(dcbert, query, document):
    model = dcbert.model.loaded
    first = query or min(64, model.length_limit // 4)
    assert model.lengths(query, document) == (first, document or model.length_limit - first)


@pytest.mark.parametrize(
    ("given", "expected"), [((None, None), (24, 24)), ((100, None), (100, 24)), ((None, 400), (24, 400))]
)
def test_a_tokenizers_own_limit_is_a_default(tmp_path, given, expected):
    """Question and passage are inputs of their own; both may be longer where they are asked to."""
    folder = tiny.limit_tokenizer(tiny.save(tmp_path, outputs=None), 24)
    ranker = DCBERT.from_pretrained(folder, query_length=given[0], document_length=given[1])
    assert ranker.lengths == expected and ranker.model.loaded.length_limit == 512
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = ranker.tokenized(["the ship was launched in the town " * 99], "document")
    assert pairs.lengths.tolist() == [expected[1]]
    with pytest.raises(ValueError, match=r"query_length=100 and document_length=500 are 600 tokens, but .* for 512"):
        _ = ranker(query_length=100, document_length=500).lengths


def test_an_untrained_model_says_so(bare):
    model = DCBERT.from_pretrained(bare).model.loaded
    with pytest.warns(UserWarning, match="are fresh: train them with fit.. before scores mean anything, or use inter"):
        model.warn_if_untrained()
