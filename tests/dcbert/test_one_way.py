"""One-way layers, fast or in training, equal whole layers over both texts of which the question's rows are kept."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyterrier_cascade import DCBERT
from pyterrier_cascade.dcbert import inference, one_way
from pyterrier_cascade.dcbert.joint import Encoded
from pyterrier_cascade.dcbert.one_way import OneWay, product_for
from pyterrier_cascade.encoder.families import Weights
from pyterrier_cascade.encoder.linear import Linear, linear_for
from tests.dcbert.fresh import loaded, logits, made
from tests.dcbert.random_states import Largest, flat, restored, texts
from tests.dcbert.results import assert_same_scores
from tests.dcbert.test_interaction import CPU, LENGTHS, assert_close

FAMILIES = ("bert", "roberta", "electra", "distilbert")


def read(encoder, family, question, document):
    """The question's rows behind each layer: Hugging Face runs each over question and document, projecting everything.

    A row's output depends on the inputs alone, so that the document's outputs can be dropped.
    """
    owner, name = family.layer_list(encoder)
    every, n = getattr(owner, name), len(question)
    for layer in every:
        setattr(owner, name, torch.nn.ModuleList([layer]))
        inputs = torch.cat([question, document])[None]
        question = encoder(inputs_embeds=inputs, attention_mask=torch.ones(inputs.shape[:2])).last_hidden_state[0, :n]
    setattr(owner, name, every)
    return question


def reference(joint, question, document):
    """The score of one document by the book."""
    n, positions, types = len(question), joint.positions.weight, joint.types.weight
    rows = question + positions[:n] + types[0]
    rows = read(joint.encoder, joint.family, rows, document + positions[n:][: len(document)] + types[1])
    score = joint.head(rows[:1], document[:1])[0]
    if joint.late is not None:
        cosines = torch.cosine_similarity(question[:, None], document[None], dim=-1)
        score = score + 20 * joint.late * cosines.amax(1).mean()
    return score


def random_layers(folder, family="bert", k=2, head="late"):
    """The joint layers of a fresh DC-BERT, with noise on all weights: biases and norms matter too."""
    module, _, _ = made(folder, family, variant="one_way", joint_layers=k, head=head)
    torch.manual_seed(k)
    with torch.no_grad():
        for parameter in module.joint.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module.joint


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("k", "head"), [(1, "late"), (2, "paper"), (3, "compare")])
def test_trained_and_fast_layers_equal_whole_layers_pair_by_pair(tmp_path, family, k, head):
    joint = random_layers(tmp_path, family, k, head)
    questions, documents = texts([4, 1, 11], seed=1), texts(LENGTHS)
    pairs = [(0, 0), (0, 1), (0, 2), (1, 2), (1, 5), (2, 5), (2, 8)]
    question_of, document_of = torch.tensor(pairs).T
    with torch.no_grad():
        expected = torch.stack([reference(joint, questions[q], documents[d]) for q, d in pairs])
        sides = (Encoded(torch.cat(one), torch.tensor([len(text) for text in one])) for one in (questions, documents))
        trained = joint(*sides, question_of, document_of)
    assert expected.std() > 0.01
    assert_close(trained, expected)
    score = inference._scorer(joint, CPU)
    for number, question in enumerate(questions):
        these = [documents[d] for q, d in pairs if q == number]
        found = score(question, SimpleNamespace(**vars(flat(these)), scales=None))
        assert_close(found, expected[question_of == number])


def interaction(joint, make=None, dtype=torch.float32):
    weights = Weights(CPU, dtype, make or linear_for(CPU, dtype))
    return OneWay(joint.family.layers(joint.encoder, weights), joint.positions.weight, joint.types.weight, joint.head)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    return {k: random_layers(tmp_path_factory.mktemp("layers"), k=k, head="compare") for k in (1, 2, 3)}


@pytest.fixture(params=[1, 2, 3])
def joint(request, layers):
    return layers[request.param]


def expected_of(joint, question, documents):
    with torch.no_grad():
        return torch.stack([reference(joint, question, document) for document in documents])


@pytest.mark.parametrize("n", [1, 9, 30, 300])
def test_many_documents(joint, n):
    lengths = np.random.default_rng(0).integers(1, 40, 100).tolist()
    (question,), documents = texts([n], seed=1), texts(lengths)
    assert_close(interaction(joint).score(question, flat(documents)), expected_of(joint, question, documents))


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_cached_states_cost_their_rounding_and_no_more(joint, dtype):
    (question,), documents = texts([11], seed=1), texts(LENGTHS)
    cached = flat(documents, dtype)
    found = interaction(joint).score(question, cached)
    assert_close(found, expected_of(joint, question, restored(cached)))
    off = (found - expected_of(joint, question, documents)).abs().max()
    assert 0 < off < (0.002 if dtype == "fp16" else 0.05)


def test_a_score_depends_on_its_document_only(joint):
    made = interaction(joint)
    (question,), documents = texts([11], seed=1), texts([*LENGTHS, *range(1, 50)])
    scores = made.score(question, flat(documents))
    order = np.random.default_rng(0).permutation(len(documents))
    assert_close(made.score(question, flat([documents[i] for i in order])), scores[order], atol=2e-6)
    for i in (0, 1, 5, 40):
        assert_close(made.score(question, flat([documents[i]])), scores[[i]], atol=2e-6)


def test_a_broken_document_breaks_its_own_score_only(joint):
    (question,), documents = texts([11], seed=1), texts(LENGTHS)
    made = interaction(joint)
    scores = made.score(question, flat(documents))
    documents[5] = torch.full((90, 32), torch.nan)
    found = made.score(question, flat(documents))
    others = [i for i in range(len(documents)) if i != 5]
    assert found[5].isnan() and torch.equal(found[others], scores[others])


def test_threads_share_it(joint):
    made, documents = interaction(joint), flat(texts([*LENGTHS, *LENGTHS]), "fp16")
    questions = texts(range(1, 21), seed=1)
    alone = [made.score(question, documents) for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda question: made.score(question, documents), questions))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_few_states_are_in_fp32_at_once(joint):
    documents = flat(texts([100] * 1_000), "fp16")
    with Largest() as largest:
        interaction(joint).score(texts([10])[0], documents)
    # Of 100,000 tokens: the feed-forward part of a part's rows, or the scores of a slab of documents in the last layer.
    assert largest.elements <= 256 * 2 * 64


def test_no_documents(joint):
    documents = SimpleNamespace(states=np.zeros((0, 32), dtype="f2"), lengths=np.array([], dtype=int))
    assert interaction(joint).score(texts([3])[0], documents).shape == (0,)


def test_in_bf16(joint):
    """Weights and states have eight bits: an error of a few hundredths of the scores' spread."""
    (question,), documents = texts([11], seed=1), flat(texts(LENGTHS * 5))
    exact = interaction(joint).score(question, documents)
    off = interaction(joint, dtype=torch.bfloat16).score(question, documents) - exact
    assert off.square().mean().sqrt() < 0.08 * exact.std()


def test_without_prepacked_weights(joint, monkeypatch):
    """Another version of torch may not have the operators of oneDNN, or may want other arguments."""
    (question,), documents = texts([11], seed=1), flat(texts(LENGTHS))
    expected = interaction(joint).score(question, documents)
    left, right = torch.randn(3, 16), torch.randn(5, 16)
    torch.testing.assert_close(product_for(CPU, torch.float32)(left, right), left @ right.T)
    monkeypatch.setattr(one_way, "_by_onednn", None)
    assert product_for.__wrapped__(CPU, torch.float32) is one_way._by_torch
    monkeypatch.setattr(one_way, "linear_for", lambda *where: Linear)
    assert product_for.__wrapped__(CPU, torch.float32) is one_way._by_torch
    monkeypatch.setattr(one_way, "product_for", product_for.__wrapped__)
    assert_close(interaction(joint, make=Linear).score(question, documents), expected, atol=2e-6)


def test_errors_are_those_of_joint_layers(joint):
    made, (question,) = interaction(joint), texts([500])
    with pytest.raises(ValueError, match="a question of 500 tokens and a document of 13 need 513 positions, but there"):
        made.score(question, flat(texts([12, 13])))
    with pytest.raises(ValueError, match="the question's states have width 16, but 32 is needed"):
        made.score(torch.zeros(3, 16), flat(texts([2])))


@pytest.mark.parametrize("k", [1, 2])
def test_one_layer_gives_the_row_that_joint_layers_give(tmp_path, k):
    """They start from the same weights, and the first layer's rows of the question are those of the joint layer."""
    rows = {}
    for variant in ("transformer", "one_way"):
        module, _, _ = made(tmp_path, variant=variant, joint_layers=k, head="compare")
        module.joint.head.forward = lambda question, document, kept=rows, name=variant: kept.update({name: question})
        one, other = Encoded(*_sides([5])), Encoded(*_sides([7, 3]))
        with torch.no_grad():
            module.joint(one, other, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert torch.allclose(rows["transformer"], rows["one_way"], atol=1e-5) == (k == 1)


def _sides(lengths):
    return torch.cat(texts(lengths)), torch.tensor(lengths)


def test_all_parts_get_gradients_and_documents_too(tmp_path):
    """A document is frozen between layers, not in training: its encoder learns from what the question reads."""
    module, tokenizer, _ = made(tmp_path, variant="one_way", joint_layers=2)
    inputs = [dict(tokenizer(text, padding=True, return_tensors="pt")) for text in (["who is it"], ["a ship", "x y"])]
    module(torch.tensor([0, 0]), torch.tensor([0, 1]), *inputs)[0].backward()
    # Keys need no bias, because it is the same for all tokens; neither do positions that no text reaches.
    without = [name for name, weight in module.joint.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert all("key.bias" in name for name in without), without
    assert module.encoders["document"].embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_it_ranks_from_texts_and_from_caches_alike(bare, corpus, candidates, tmp_path):
    """The cache of another variant serves it: documents are encoded alike."""
    model = DCBERT.from_pretrained(bare, variant="one_way", joint_layers=2)
    assert "variant='one_way'" in repr(model) and eval(repr(model)) == model
    with pytest.warns(UserWarning, match="the joint layers on .* are fresh"):
        expected = model(candidates)
    for dtype, atol in (("fp16", 1e-3), ("int8", 0.1)):
        cache = DCBERT.from_pretrained(bare).encode(corpus, tmp_path / dtype, dtype=dtype)
        with pytest.warns(UserWarning, match="the joint layers on .* are fresh"):
            assert_same_scores(cache.reranker(model)(candidates.drop(columns="text")), expected, atol)


def test_scores_are_those_of_the_module_that_is_trained(bare, candidates):
    module, tokenizer, _ = loaded(bare, variant="one_way", joint_layers=3)
    ranker = DCBERT.from_pretrained(bare, variant="one_way", joint_layers=3)
    pairs = [(row, row) for row in range(len(candidates))]
    expected = logits(module, tokenizer, pairs, candidates["query"].tolist(), candidates["text"].tolist())
    with pytest.warns(UserWarning, match="are fresh"):
        found = ranker(candidates)
    assert_same_scores(found, candidates.assign(score=expected.numpy().astype(float)), 1e-5)


def test_the_variant_changes_the_identity(bare):
    models = [DCBERT.from_pretrained(bare, **parts) for parts in ({}, {"variant": "one_way"})]
    assert models[0].model.fingerprint != models[1].model.fingerprint
    assert models[0].document_fingerprint() == models[1].document_fingerprint()


def test_costs(bare, corpus, candidates, tmp_path):
    """A layer counts in full, by tokens with the question's alone: three layers for the question, two for each pair."""
    one = candidates[candidates["qid"] == "a"].head(4)
    model = DCBERT.from_pretrained(bare, variant="one_way", joint_layers=2)
    with pytest.warns(UserWarning, match="are fresh"):
        found = model.encode(corpus, tmp_path / "cache").reranker()(one)
    n = len(model.model.loaded.tokenizer("who founded the town")["input_ids"])
    np.testing.assert_allclose(found[["q_cost", "q_token_cost"]].drop_duplicates(), [[3 + 2 * 4, 3 * n + 2 * 4 * n]])
