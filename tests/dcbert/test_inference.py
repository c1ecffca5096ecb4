import pytest

from pyterrier_cascade import DCBERT
from pyterrier_cascade.model import LoadedModel


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
        "trained_on": {"questions": 1},
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


def test_an_untrained_model_says_so(bare):
    model = DCBERT.from_pretrained(bare).model.loaded
    with pytest.warns(UserWarning, match="are fresh: train them with fit.. before scores mean anything, or use inter"):
        model.warn_if_untrained()
