"""The table of families: which encoders are run, and which are refused by name."""

import re

import pytest
import transformers

from pyterrier_cascade.crossencoder.model import load
from pyterrier_cascade.encoder.families import FAMILIES, MODEL_TYPES, family_of, position_limit
from pyterrier_cascade.encoder.families.bert import Bert
from tests.encoder import spans


def test_every_model_type_has_one_family():
    names = [name for family in FAMILIES for name in family.model_types]
    assert sorted(names) == sorted(set(names)) == sorted(MODEL_TYPES)
    assert family_of(transformers.CamembertConfig()) is family_of(transformers.XLMRobertaConfig())


def test_a_new_family_is_one_entry_of_the_table(encoder, monkeypatch):
    class Another(Bert):
        model_types = ("another",)

    model = encoder("bert")
    monkeypatch.setattr(model.config, "model_type", "another", raising=False)
    with pytest.raises(ValueError, match="encoders of type 'another' cannot be run layer by layer"):
        spans.executor(model)
    monkeypatch.setitem(MODEL_TYPES, "another", Another())
    spans.assert_equals_hugging_face(model, spans.inputs([9, 4, 4]))


def test_other_architectures_are_named_at_the_door(tmp_path):
    transformers.AlbertConfig().save_pretrained(tmp_path)
    message = (
        "encoders of type 'albert' cannot be run layer by layer; supported are bert, camembert, distilbert, electra, "
        "modernbert, roberta, xlm-roberta (MiniLM is one of bert)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"position_embedding_type": "relative_key"},
            "this bert encoder has 'relative_key' positions; only 'absolute'",
        ),
        ({"is_decoder": True}, "is a decoder (is_decoder=True in its config.json); give an encoder"),
    ],
)
def test_variants_that_would_score_wrongly_are_refused(changes, message):
    config = transformers.BertConfig()
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        family_of(config)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (transformers.BertConfig(), 512),
        (transformers.RobertaConfig(max_position_embeddings=514, pad_token_id=1), 512),
        (transformers.ModernBertConfig(max_position_embeddings=8192), 8192),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_position_limits(config, limit):
    """RoBERTa does not use the first rows of its table."""
    assert position_limit(config) == limit
