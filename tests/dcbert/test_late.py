from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyterrier_cascade.dcbert import late
from tests.dcbert.random_states import Largest, flat, restored, texts

LENGTHS = [3, 1, 40, 2, 1500, 12, 12]


def by_loops(question, documents, specials):
    """One pair of tokens after the other."""
    scores = []
    for document in documents:
        asked, tokens = question.double().numpy(), document.double().numpy()
        if not specials:
            asked, tokens = asked[1:-1], tokens[1:-1]
        best = []
        for q in asked:
            cosines = [q @ d / np.linalg.norm(q) / np.linalg.norm(d) for d in tokens]
            best.append(max(cosines, default=-1.0))
        scores.append(sum(best) / len(best))
    return torch.tensor(scores, dtype=torch.float32)


def assert_close(found, expected, atol=1e-6):
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("specials", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_equal_to_two_loops(specials, dtype):
    (question,), documents = texts([7], seed=1), flat(texts(LENGTHS), dtype)
    expected = by_loops(question, restored(documents), specials)
    assert_close(late.score(question, documents, specials), expected)


def test_by_hand():
    question = torch.tensor([[1.0, 0], [0, 2]])
    documents = SimpleNamespace(states=np.array([[3, 0], [1, 1], [-5, 0]], dtype="f4"), lengths=[2, 1])
    # Best cosines: 1 and the root of 1/2; -1 and 0.
    assert_close(late.score(question, documents), torch.tensor([0.85355339, -0.5]))


def test_special_tokens_are_the_first_and_last():
    question = torch.tensor([[9.0, 9], [1, 0], [9, 9]])
    states = np.array([[1, 0], [0, 1], [1, 0], [1, 0], [1, 0], [0, 1], [0, -1], [2, 0], [5, 0]], dtype="f4")
    documents = SimpleNamespace(states=states, lengths=[3, 2, 4])
    assert late.score(question, documents, specials=False).tolist() == [0, -1, 1]
    # A question of nothing else is compared by them.
    assert late.score(question[1:2], documents, specials=False).tolist() == [0, -1, 1]
    assert late.score(question[1:2].repeat(2, 1), documents, specials=False).tolist() == [0, -1, 1]
    assert late.score(question[1:2], documents).tolist() == [1, 1, 1]


def test_scales_do_not_matter():
    (question,), documents = texts([7], seed=1), flat(texts(LENGTHS), "int8")
    scores = late.score(question, documents)
    documents.scales = documents.scales * 1_000
    assert torch.equal(late.score(question, documents), scores)
    del documents.scales
    assert torch.equal(late.score(question, documents), scores)


def test_a_token_without_direction_is_like_none():
    question = torch.tensor([[0.0, 0], [1, 0]])
    documents = SimpleNamespace(states=np.array([[0, 0], [-1, 0], [0, 0]], dtype="f2"), lengths=[1, 2])
    assert late.score(question, documents).tolist() == [0, 0]


@pytest.mark.parametrize("specials", [True, False])
def test_many_documents(specials):
    lengths = np.random.default_rng(0).integers(2, 200, 1_500).tolist()
    (question,), documents = texts([7], width=8, seed=1), texts(lengths, width=8)
    assert sum(lengths) > 2 * late.GROUP
    part = slice(None) if specials else slice(1, -1)
    asked = torch.nn.functional.normalize(question[part], dim=1)
    expected = [
        (asked @ torch.nn.functional.normalize(document[part], dim=1).T).amax(1).mean() if len(document[part]) else -1.0
        for document in documents
    ]
    cached = flat(documents)
    with Largest() as largest:
        found = late.score(question, cached, specials)
    assert_close(found, torch.tensor(expected))
    assert largest.elements <= late.GROUP * 7


def test_a_score_depends_on_its_document_only():
    (question,), documents = texts([7], seed=1), texts(LENGTHS * 3)
    scores = late.score(question, flat(documents))
    order = np.random.default_rng(0).permutation(len(documents))
    assert torch.equal(late.score(question, flat([documents[i] for i in order])), scores[order])
    documents[4] = torch.full((1500, 32), torch.nan)
    found = late.score(question, flat(documents))
    others = [i for i in range(len(documents)) if i != 4]
    assert found[4].isnan()
    assert torch.equal(found[others], scores[others])


def test_threads_share_it():
    documents, questions = flat(texts(LENGTHS), "fp16"), texts(range(1, 21), seed=1)
    alone = [late.score(question, documents) for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda question: late.score(question, documents), questions))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_no_documents():
    documents = SimpleNamespace(states=np.zeros((0, 32), dtype="f2"), lengths=np.array([], dtype=int))
    assert late.score(texts([3])[0], documents).shape == (0,)


def test_errors():
    documents = flat(texts([2, 3]), "fp16")
    for question, lengths, message in (
        (torch.randn(0, 32), [2, 3], "a question's states must be (n_tokens, width), at least one; got (0, 32)"),
        (torch.randn(32), [2, 3], "a question's states must be (n_tokens, width), at least one; got (32,)"),
        (torch.randn(3, 16), [2, 3], "the documents' states must be (n_tokens, 16); got (5, 32)"),
        (torch.randn(3, 32), [2, 4], "the documents' lengths sum to 6, but they have 5 states"),
    ):
        with pytest.raises(ValueError) as raised:
            late.score(question, SimpleNamespace(states=documents.states, lengths=lengths))
        assert raised.value.args[0] == message
