import copy
import math
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from pyterrier_cascade.dcbert.interaction import Interaction
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.layers import Norm, PostNormLayer
from pyterrier_cascade.encoder.linear import Linear, linear_for
from tests.dcbert.random_states import Largest, flat, restored, texts

CPU = torch.device("cpu")
LENGTHS = [7, 1, 30, 7, 2, 90, 31, 29, 1]


class Head(torch.nn.Module):
    """DC-6: Linear(2d, d), tanh, Linear(d, 1); with dropout while it trains."""

    def __init__(self, width):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(2 * width, width), torch.nn.Linear(width, 1)

    def forward(self, question, document):
        hidden = torch.tanh(self.hidden(torch.cat([question, document], -1)))
        return self.out(torch.nn.functional.dropout(hidden, 0.5, self.training))[:, 0]


class Joint:
    """Random joint layers as Hugging Face has them, and the interaction made of them."""

    def __init__(self, k=1, n_heads=4, width=32, n_positions=128, make=None, dtype=torch.float32):
        torch.manual_seed(k + n_heads)
        sizes = {"hidden_size": width, "num_attention_heads": n_heads, "intermediate_size": 2 * width}
        config = transformers.BertConfig(num_hidden_layers=k, vocab_size=8, **sizes)
        self.encoder = transformers.BertModel(config).eval()
        self.head = Head(width)
        for name, parameter in [*self.encoder.encoder.named_parameters(), *self.head.named_parameters()]:
            torch.nn.init.normal_(parameter, float("LayerNorm.weight" in name), 0.25)
        self.positions, self.types = torch.randn(n_positions, width) / 2, torch.randn(2, width) / 2
        self.layers = take_apart(self.encoder, Weights(CPU, dtype, make or linear_for(CPU, dtype))).layers
        self.interaction = Interaction(self.layers, self.positions, self.types, self.head)

    def score(self, question, documents, dtype="fp32"):
        return self.interaction.score(question, flat(documents, dtype))

    def reference(self, question, documents):
        """DC-5 and DC-6 as written: padded, masked, every row of every layer."""
        n, joined = len(question), []
        for document in documents:
            states = torch.cat([question + self.types[0], document + self.types[1]])
            joined.append(states + self.positions[: len(states)])
        hidden = torch.nn.utils.rnn.pad_sequence(joined, batch_first=True)
        real = torch.tensor([len(states) for states in joined])[:, None] > torch.arange(hidden.shape[1])
        mask = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)[:, None, None]
        for layer in self.encoder.encoder.layer:
            hidden = layer(hidden, mask)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return copy.deepcopy(self.head).eval()(hidden[:, 0], hidden[:, n])


def assert_close(found, expected, atol=1e-5):
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=atol)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n_heads", [1, 4, 16])
@pytest.mark.parametrize(("n", "lengths"), [(6, [1]), (1, [5]), (11, LENGTHS)])
def test_equal_to_all_rows_of_all_layers(k, n_heads, n, lengths):
    joint = Joint(k, n_heads)
    (question,), documents = texts([n], seed=1), texts(lengths)
    assert_close(joint.score(question, documents), joint.reference(question, documents))


@pytest.mark.parametrize("k", [1, 2])
def test_many_documents(k):
    joint = Joint(k)
    lengths = np.random.default_rng(0).integers(1, 40, 300).tolist()
    (question,), documents = texts([9], seed=1), texts(lengths)
    expected = joint.reference(question, documents)
    assert expected.std() > 0.1
    assert_close(joint.score(question, documents), expected)


def test_by_hand():
    """The query map is 0, so all tokens weigh the same, and of the feed-forward only its residual is left."""
    eye, zero, bias = torch.eye(4), torch.zeros(4, 4), torch.zeros(4)
    norm = Norm(torch.ones(4), bias, 0.0)
    key_value = Linear(torch.cat([eye, eye]), torch.zeros(8))
    layer = PostNormLayer(
        Linear(zero, bias), key_value, Linear(eye, bias), norm, Linear(zero, bias), Linear(zero, bias), norm, n_heads=2
    )
    outer, inner = torch.tensor([1.0, 0, 0, -1]), torch.tensor([0, 1.0, -1, 0])
    positions, types = torch.stack([outer, inner, 0 * inner]), torch.stack([outer, inner])
    interaction = Interaction([layer], positions, types, lambda_module(lambda q, d: 2 * q[:, 0] + 10 * d[:, 1]))
    # With positions and types: (3, 0, 0, -3) for the question; (0, 3, -3, 0) and (0, 0, 0, 0) for the document.
    # Their mean, (1, 1, -1, -1), on top of each CLS: (4, 1, -1, -4) and (1, 4, -4, -1), of variance 8.5.
    document = SimpleNamespace(states=torch.stack([inner, -inner]), lengths=[2])
    assert_close(interaction.score(outer[None], document), torch.tensor([(2 * 4 + 10 * 4) / math.sqrt(8.5)]))


def lambda_module(function):
    module = torch.nn.Module()
    module.forward = function
    return module


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_cached_states_cost_their_rounding_and_no_more(k, dtype):
    joint = Joint(k)
    (question,), documents = texts([11], seed=1), texts(LENGTHS)
    cached = flat(documents, dtype)
    found = joint.interaction.score(question, cached)
    assert_close(found, joint.reference(question, restored(cached)))
    # A value is off by up to half a unit in fp16's eleventh bit, or half a level of its token in int8, evenly and
    # independently: to first order a score's error has a deviation of these, times their slopes, over the root of 3.
    for score, document in zip(found, documents, strict=True):
        document = document.clone().requires_grad_()
        exact = joint.reference(question, [document])[0]
        (slope,) = torch.autograd.grad(exact, document)
        off = document.detach().abs()
        off = off * 2**-11 if dtype == "fp16" else off.amax(1, keepdim=True) / 254
        deviation = float((slope * off).square().sum().div(3).sqrt())
        assert deviation < (0.002 if dtype == "fp16" else 0.03)
        assert abs(score - exact.detach()) < 4 * deviation + 1e-5


@pytest.mark.parametrize("k", [1, 2])
def test_in_bf16(k):
    """Weights and states have eight bits: an error of a few hundredths of the scores' spread."""
    (question,), documents = texts([11], seed=1), texts(LENGTHS * 5)
    exact = Joint(k).score(question, documents)
    off = Joint(k, dtype=torch.bfloat16).score(question, documents) - exact
    assert off.square().mean().sqrt() < 0.06 * exact.std()


@pytest.mark.parametrize("k", [1, 3])
def test_plain_and_prepacked_weights_alike(k):
    (question,), documents = texts([11], seed=1), texts(LENGTHS)
    assert_close(Joint(k, make=Linear).score(question, documents), Joint(k).score(question, documents), atol=1e-6)


@pytest.mark.parametrize("k", [1, 2])
def test_a_score_depends_on_its_document_only(k):
    joint = Joint(k)
    (question,), documents = texts([11], seed=1), texts([*LENGTHS, *range(1, 50), *[8] * 90])
    scores = joint.score(question, documents)
    order = np.random.default_rng(0).permutation(len(documents))
    assert_close(joint.score(question, [documents[i] for i in order]), scores[order], atol=2e-6)
    for i in (0, 1, 5, 40, 100):
        assert_close(joint.score(question, [documents[i]]), scores[[i]], atol=2e-6)


def test_a_broken_document_breaks_its_own_score_only():
    joint = Joint()
    (question,), documents = texts([11], seed=1), texts(LENGTHS)
    scores = joint.score(question, documents)
    documents[5] = torch.full((90, 32), torch.nan)
    found = joint.score(question, documents)
    assert found[5].isnan()
    others = [i for i in range(len(documents)) if i != 5]
    assert torch.equal(found[others], scores[others])


@pytest.mark.parametrize("k", [1, 2])
def test_threads_share_it(k):
    joint = Joint(k)
    documents = flat(texts([*LENGTHS, *LENGTHS]), "fp16")
    questions = texts(range(1, 21), seed=1)
    alone = [joint.interaction.score(question, documents) for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda question: joint.interaction.score(question, documents), questions))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("k", [1, 2])
def test_few_states_are_in_fp32_at_once(k):
    joint = Joint(k)
    documents = flat(texts([100] * 1_000), "fp16")
    with Largest() as largest:
        joint.interaction.score(texts([10])[0], documents)
    # Of 100,000 tokens: the sums for eight heads at two rows of a slab, or the keys and values of a chunk.
    assert largest.elements <= 128 * 2 * 4 * 32 + 700 * 64


def test_memory_maps_are_read_without_a_warning(tmp_path):
    joint, (question,), documents = Joint(), texts([4], seed=1), flat(texts(LENGTHS), "int8")
    expected = joint.interaction.score(question, documents)
    for name in ("states", "scales"):
        np.save(tmp_path / f"{name}.npy", getattr(documents, name))
        setattr(documents, name, np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(joint.interaction.score(question, documents), expected)


@pytest.mark.parametrize("k", [1, 2])
def test_no_documents(k):
    documents = SimpleNamespace(states=np.zeros((0, 32), dtype="f2"), lengths=np.array([], dtype=int))
    assert Joint(k).interaction.score(texts([3])[0], documents).shape == (0,)


def test_the_classifier_given_stays_as_it_was():
    joint = Joint()
    assert type(joint.head.hidden) is torch.nn.Linear
    assert joint.head.training


@pytest.mark.parametrize("k", [1, 2])
def test_as_long_as_there_are_positions(k):
    joint = Joint(k, n_positions=40)
    (question,), documents = texts([10], seed=1), texts([30, 3])
    assert_close(joint.score(question, documents), joint.reference(question, documents))
    message = (
        "a question of 10 tokens and a document of 31 need 41 positions, but there are 40; "
        "score longer documents by passages"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        joint.score(question, texts([3, 31]))


def error(function, *args) -> str:
    with pytest.raises(ValueError) as raised:
        function(*args)
    return raised.value.args[0]


def test_errors_of_states():
    score, question, documents = Joint().interaction.score, torch.randn(3, 32), flat(texts([2, 3]), "int8")
    assert (
        error(score, torch.randn(0, 32), documents)
        == "a question's states must be (n_tokens, width), at least one; got (0, 32)"
    )
    assert error(score, torch.randn(3, 16), documents) == "the question's states have width 16, but 32 is needed"

    def wrong(**parts):
        return error(score, question, SimpleNamespace(**{**vars(documents), **parts}))

    assert wrong(states=documents.states[:, :8]) == "the documents' states must be (n_tokens, 32); got (5, 8)"
    assert wrong(lengths=[2, 2]) == "the documents' lengths sum to 4, but they have 5 states"
    assert wrong(lengths=[5, 0]) == "document 1 has length 0; each needs one token at least"
    assert wrong(scales=documents.scales[:4]) == "5 states need as many scales; got (4,)"
    assert wrong(scales=None) == "states in int8 need scales, one for each token"


def test_errors_of_parts():
    joint = Joint()
    parts = {"layers": joint.layers, "positions": joint.positions, "types": joint.types, "classifier": joint.head}

    def wrong(**given):
        return error(lambda: Interaction(**(parts | given)))

    needed = "the interaction needs layers like BERT's (PostNormLayer), one or more; got "
    assert wrong(layers=[]) == needed + "[]"
    assert wrong(layers=[joint.layers[0], joint.head]) == needed + "['PostNormLayer', 'Head']"
    assert wrong(types=torch.zeros(1, 32)) == "the types must be (2, 32), as wide as the positions; got (1, 32)"
