import pytest
import torch
import transformers

from pyterrier_cascade.dcbert import model as dcbert
from pyterrier_cascade.dcbert.model import Encoded
from tests import tiny

FAMILIES = ("bert", "roberta", "electra", "distilbert")
QUESTIONS, DOCUMENTS = ["who is it", "what ship launched"], ["a ship", "the town was founded", "x y z"]


def made(folder, family="bert", layers=3, **parts):
    return dcbert.load(tiny.save(folder / family, family, layers=layers, outputs=None), **parts)


def batch(tokenizer, texts):
    return dict(tokenizer(texts, padding=True, return_tensors="pt"))


def logits(module, tokenizer, pairs, questions=QUESTIONS, documents=DOCUMENTS):
    of = torch.tensor(pairs).T
    with torch.no_grad():
        return module(*of, batch(tokenizer, questions), batch(tokenizer, documents))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("k", "head"), [(1, "late"), (3, "compare")])
def test_joint_layers_equal_hugging_faces_own_over_both_texts_end_to_end(tmp_path, family, k, head):
    module, _, _ = made(tmp_path, family, joint_layers=k, head=head)
    joint = module.joint
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in joint.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        questions = Encoded(torch.randn(9, 32), torch.tensor([4, 5]))
        documents = Encoded(torch.randn(20, 32), torch.tensor([3, 10, 7]))
        question_of, document_of = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2])
        found = joint(questions, documents, question_of, document_of)
        for number, (q, d) in enumerate(zip(question_of, document_of, strict=True)):
            question, document = questions.states.split([4, 5])[q], documents.states.split([3, 10, 7])[d]
            # DC-5: positions count on behind the question, nothing is normalised behind the sum.
            states = torch.cat([question + joint.types.weight[0], document + joint.types.weight[1]])
            states = states + joint.positions.weight[: len(states)]
            mask = torch.ones(1, len(states))
            out = joint.encoder(inputs_embeds=states[None], attention_mask=mask).last_hidden_state[0]
            expected = joint.head(out[:1], out[[len(question)]])
            if head == "late":
                cosines = torch.cosine_similarity(question[:, None], document[None], dim=-1)
                expected = expected + 20 * joint.late * cosines.amax(1).mean()
            torch.testing.assert_close(found[[number]], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("parts", [{"joint_layers": 2}, {"interaction": "linear"}, {"interaction": "lstm"}])
def test_a_score_depends_neither_on_pads_nor_on_neighbours(tmp_path, parts):
    module, tokenizer, _ = made(tmp_path, **parts)
    together = logits(module, tokenizer, [(0, 0), (0, 1), (1, 1), (1, 2)])
    alone = logits(module, tokenizer, [(0, 0)], ["what ship launched"], ["x y z"])
    torch.testing.assert_close(together[[3]], alone, atol=1e-6, rtol=0)
    assert len(set(together.tolist())) == 4


def test_parts_start_from_the_encoder(tmp_path):
    source = tiny.save(tmp_path / "bert", layers=3, outputs=None)
    encoder = transformers.AutoModel.from_pretrained(source)
    module, _, untrained = dcbert.load(source, joint_layers=2, lower_layers=1)
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


def test_heads(tmp_path):
    question, document = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    for kind, read in (("paper", [1, 2, 3, -1]), ("compare", [1, 2, 3, -1, 3, -2, 2, 3])):
        head = dcbert.Comparison(2, kind)
        with torch.no_grad():
            hidden = torch.tanh(head.hidden.weight @ torch.tensor(read, dtype=torch.float) + head.hidden.bias)
            expected = head.out.weight[0] @ hidden + head.out.bias
            torch.testing.assert_close(head(question, document), expected)


@pytest.mark.parametrize("parts", [{"joint_layers": 2, "head": "paper"}, {"interaction": "lstm", "tied": True}])
def test_what_is_saved_is_what_is_loaded(tmp_path, parts):
    module, tokenizer, _ = made(tmp_path, **parts)
    module.config.trained_on = {"questions": 1}
    module.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again, _, untrained = dcbert.load(str(tmp_path / "saved"))
    assert untrained is None and again.config.head == module.config.head and again.config.tied == module.config.tied
    pairs = [(0, 0), (1, 2)]
    torch.testing.assert_close(logits(again, tokenizer, pairs), logits(module, tokenizer, pairs), atol=1e-6, rtol=0)


def test_a_question_and_a_document_too_long_for_the_positions(tmp_path):
    module, _, _ = dcbert.load(tiny.save(tmp_path / "short", outputs=None, max_position_embeddings=16))
    texts = Encoded(torch.zeros(9, 32), torch.tensor([9]))
    with pytest.raises(ValueError, match="have 18 tokens together, but there are global positions for 16"):
        module.joint(texts, texts, torch.tensor([0]), torch.tensor([0]))


def test_bad_parts(tmp_path):
    source = tiny.save(tmp_path / "bert", outputs=None)
    for parts, message in [
        ({"interaction": "gru"}, "interaction must be one of transformer, linear, lstm, not 'gru'"),
        ({"head": "both"}, "head must be one of late, compare, paper, not 'both'"),
        ({"joint_layers": 0}, "joint_layers must be at least 1, not 0"),
        ({"joint_layers": 3}, f"joint_layers=3, but the encoder {source!r} has 2 layers"),
        ({"lower_layers": 4}, f"lower_layers=4, but the encoder {source!r} has 2 layers"),
    ]:
        with pytest.raises(ValueError) as error:
            dcbert.load(source, **parts)
        assert str(error.value) == message
    modern = tiny.save(tmp_path / "modern", "modernbert", outputs=None)
    with pytest.raises(ValueError, match="is a ModernBERT, which has no table of positions"):
        dcbert.load(modern)
    module, tokenizer, _ = dcbert.load(source)
    module.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match="was made with joint_layers=1, not 2; leave it out"):
        dcbert.load(str(tmp_path / "saved"), joint_layers=2)
