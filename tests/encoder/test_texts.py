"""Texts that stand alone: their states are Hugging Face's own."""

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from pyterrier_cascade.encoder.pairs import tokenize_texts
from pyterrier_cascade.encoder.texts import TextEncoder
from tests import tiny

TEXTS = ["the ship", "", "who founded the town and what ship launched in it", "x", "a town " * 30]
CPU = torch.device("cpu")


def loaded(folder, family="bert"):
    source = tiny.save(folder / family, family, layers=3, outputs=None)
    return (
        transformers.AutoModel.from_pretrained(source).eval(),
        transformers.AutoTokenizer.from_pretrained(source),
    )


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_states_are_hugging_faces_own(tmp_path, family):
    module, tokenizer = loaded(tmp_path, family)
    pairs = tokenize_texts(tokenizer, TEXTS, max_length=40)
    states = TextEncoder(module, CPU).states(pairs)
    for text, found in zip(TEXTS, states.split(pairs.lengths.tolist()), strict=True):
        inputs = tokenizer(text, truncation=True, max_length=40, return_tensors="pt")
        with torch.no_grad():
            expected = module(**inputs).last_hidden_state[0]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_states_are_the_same_bits_on_any_number_of_threads(tmp_path):
    module, tokenizer = loaded(tmp_path)
    pairs = tokenize_texts(tokenizer, TEXTS * 20, max_length=40)
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            found.append(TextEncoder(module, CPU).states(pairs))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_the_calling_thread_computes_nothing(tmp_path):
    """Its own threads would spin on and take the cores of those that compute; what it runs is seen by the mode."""

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    module, tokenizer = loaded(tmp_path)
    pairs, seen = tokenize_texts(tokenizer, TEXTS, max_length=40), []
    encoder = TextEncoder(module, CPU)
    with Seen():
        encoder.states(pairs)
        # An array becomes a tensor.
        assert seen == [torch.ops.aten.lift_fresh.default]
        torch.ones(2) + 1
    assert seen[-1] == torch.ops.aten.add.Tensor
