import pytest
import torch
import transformers

from pyterrier_cascade import DCBERT
from pyterrier_cascade.dcbert import loading
from tests import tiny
from tests.dcbert.fresh import loaded, logits, made


@pytest.mark.parametrize("variant", ["transformer", "one_way"])
def test_parts_start_from_the_encoder(tmp_path, variant):
    source = tiny.save(tmp_path / "bert", layers=3, outputs=None)
    encoder = transformers.AutoModel.from_pretrained(source)
    module, _, untrained = loaded(source, joint_layers=2, lower_layers=1, variant=variant)
    assert untrained == f"the joint layers on {source!r} are fresh"
    for side in ("question", "document"):
        lower = module.encoder_of(side)
        assert len(lower.encoder.layer) == 1
        assert torch.equal(lower.encoder.layer[0].output.dense.weight, encoder.encoder.layer[0].output.dense.weight)
    # DC-5: the last K layers, and the tables of positions and types.
    for own, given in zip(module.joint.encoder.encoder.layer, encoder.encoder.layer[1:], strict=True):
        assert torch.equal(own.output.dense.weight, given.output.dense.weight)
    assert torch.equal(module.joint.positions.weight, encoder.embeddings.position_embeddings.weight)
    assert torch.equal(module.joint.types.weight, encoder.embeddings.token_type_embeddings.weight)


def test_tables_of_families_that_differ(tmp_path):
    roberta, _, _ = made(tmp_path, "roberta")
    table = transformers.AutoModel.from_pretrained(tmp_path / "roberta").embeddings
    # The first positions of RoBERTa are its padding's.
    assert torch.equal(roberta.joint.positions.weight, table.position_embeddings.weight[2:])
    first = table.token_type_embeddings.weight[0]
    other = table.token_type_embeddings.weight[-1]
    assert torch.equal(roberta.joint.types.weight, torch.stack([first, other]))
    electra, _, _ = made(tmp_path, "electra")
    given = transformers.AutoModel.from_pretrained(tmp_path / "electra")
    expected = given.embeddings.position_embeddings.weight @ given.embeddings_project.weight.T
    torch.testing.assert_close(electra.joint.positions.weight, expected)
    distilbert, _, _ = made(tmp_path, "distilbert")
    assert not distilbert.joint.types.weight.any()


def test_tied_encoders_are_one(tmp_path):
    module, tokenizer, _ = made(tmp_path, tied=True)
    assert module.encoder_of("question") is module.encoder_of("document")
    untied, _, _ = made(tmp_path)
    untied.joint.load_state_dict(module.joint.state_dict())
    assert untied.encoder_of("question") is not untied.encoder_of("document")
    assert torch.equal(logits(module, tokenizer, [(0, 0)]), logits(untied, tokenizer, [(0, 0)]))


SAVED = [
    {"joint_layers": 2, "head": "paper"},
    {"variant": "lstm", "tied": True},
    {"variant": "one_way", "joint_layers": 2},
]


@pytest.mark.parametrize("parts", SAVED)
def test_what_is_saved_is_what_is_loaded(tmp_path, parts):
    module, tokenizer, _ = made(tmp_path, **parts)
    module.config.trained_on = {"questions": 1}
    module.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again, _, untrained = loaded(str(tmp_path / "saved"))
    assert untrained is None and again.config.head == module.config.head and again.config.tied == module.config.tied
    pairs = [(0, 0), (1, 2)]
    torch.testing.assert_close(logits(again, tokenizer, pairs), logits(module, tokenizer, pairs), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"variant": "gru"}, "variant must be one of transformer, one_way, linear, lstm, not 'gru'"),
        ({"head": "both"}, "head must be one of late, compare, paper, not 'both'"),
        ({"joint_layers": 0}, "joint_layers must be at least 1, not 0"),
        ({"joint_layers": 3}, "joint_layers=3, but the encoder '.*' has 2 layers"),
        ({"lower_layers": 4}, "lower_layers=4, but the encoder '.*' has 2 layers"),
    ],
)
def test_bad_parts(tmp_path, parts, message):
    with pytest.raises(ValueError, match=message):
        loading.load(tiny.save(tmp_path / "bert", outputs=None), **parts)


@pytest.mark.parametrize("variant", ["transformer", "one_way"])
def test_a_modernbert_has_no_positions_to_start_from(tmp_path, variant):
    with pytest.raises(ValueError, match="is of type 'modernbert', which has no table of positions"):
        loading.load(tiny.save(tmp_path / "modern", "modernbert", outputs=None), variant=variant)


def test_a_saved_model_has_its_own_parts(tmp_path):
    model = loading.load(tiny.save(tmp_path / "bert", outputs=None))
    model.module.save_pretrained(tmp_path / "saved")
    model.tokenizer.save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match="was made with joint_layers=1, not 2; leave it out"):
        loading.load(str(tmp_path / "saved"), joint_layers=2)


def test_a_folder_of_another_ranker_names_its_class(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "cascade_transformer"}')
    ranker = DCBERT.from_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match=r"holds a Cascade, not a DCBERT; use Cascade\.from_pretrained"):
        assert ranker.model.loaded
