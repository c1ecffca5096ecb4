from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from transformers.models.bert.modeling_bert import BertLayer

from pyterrier_cascade.dcbert.interaction import Interaction
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.linear import linear_for


class Head(torch.nn.Module):
    """DC-6: Linear(2d, d), tanh, Linear(d, 1)."""

    def __init__(self, width):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(2 * width, width), torch.nn.Linear(width, 1)

    def forward(self, question, document):
        return self.out(torch.tanh(self.hidden(torch.cat([question, document], -1))))[:, 0]


class Joint:
    """Random joint layers as Hugging Face has them, and what is made of them."""

    def __init__(self, k=1, n_heads=4, width=32, n_positions=128, make=None):
        torch.manual_seed(k + n_heads)
        config = transformers.BertConfig(
            hidden_size=width, num_attention_heads=n_heads, intermediate_size=2 * width, num_hidden_layers=k
        )
        config.vocab_size = 8
        self.encoder = transformers.BertModel(config).eval()
        for name, parameter in self.encoder.named_parameters():
            if "LayerNorm" not in name:
                torch.nn.init.normal_(parameter, 0, 0.3)
        self.positions, self.types = torch.randn(n_positions, width) / 2, torch.randn(2, width) / 2
        self.head = Head(width)
        make = make or linear_for(torch.device("cpu"), torch.float32)
        layers = take_apart(self.encoder, Weights(torch.device("cpu"), torch.float32, make)).layers
        self.interaction = Interaction(layers, self.positions, self.types, self.head)

    @torch.no_grad()
    def reference(self, question, documents):
        """DC-5, DC-6 as written: padded, masked, every row of every layer."""
        n, joined = len(question), []
        for document in documents:
            joined.append(torch.cat([question + self.types[0], document + self.types[1]]))
            joined[-1] = joined[-1] + self.positions[: len(joined[-1])]
        hidden = torch.nn.utils.rnn.pad_sequence(joined, batch_first=True)
        real = torch.tensor([len(states) for states in joined])[:, None] > torch.arange(hidden.shape[1])
        mask = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)[:, None, None]
        for layer in self.encoder.encoder.layer:
            assert isinstance(layer, BertLayer)
            hidden = layer(hidden, mask)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self.head(hidden[:, 0], hidden[:, n])


def texts(lengths, width=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, width, generator=generator) for length in lengths]


def flat(documents, dtype=np.float32):
    states = torch.cat(documents).numpy().astype(dtype)
    return SimpleNamespace(states=states, lengths=np.array([len(document) for document in documents]))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n_heads", [1, 4])
@pytest.mark.parametrize("lengths", [[1], [5], [7, 1, 30, 7, 2, 90, 31, 29, 1]])
def test_equal_to_all_rows_of_all_layers(k, n_heads, lengths):
    joint = Joint(k, n_heads)
    (question,), documents = texts([6], seed=1), texts(lengths)
    expected = joint.reference(question, documents)
    torch.testing.assert_close(joint.interaction.score(question, flat(documents)), expected, rtol=0, atol=1e-5)
