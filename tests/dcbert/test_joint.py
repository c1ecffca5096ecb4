import pytest
import torch

from pyterrier_cascade.dcbert.joint import Comparison, Encoded
from tests import tiny
from tests.dcbert.fresh import loaded, made

FAMILIES = ("bert", "roberta", "electra", "distilbert")


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


def test_heads(tmp_path):
    question, document = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    for kind, read in (("paper", [1, 2, 3, -1]), ("compare", [1, 2, 3, -1, 3, -2, 2, 3])):
        head = Comparison(2, kind)
        with torch.no_grad():
            hidden = torch.tanh(head.hidden.weight @ torch.tensor(read, dtype=torch.float) + head.hidden.bias)
            expected = head.out.weight[0] @ hidden + head.out.bias
            torch.testing.assert_close(head(question, document), expected)


def test_a_question_and_a_document_too_long_for_the_positions(tmp_path):
    module, _, _ = loaded(tiny.save(tmp_path / "short", outputs=None, max_position_embeddings=16))
    texts = Encoded(torch.zeros(9, 32), torch.tensor([9]))
    with pytest.raises(ValueError, match="have 18 tokens together, but there are global positions for 16"):
        module.joint(texts, texts, torch.tensor([0]), torch.tensor([0]))
