"""Fresh DC-BERTs on tiny encoders, and the scores of a few texts."""

import torch

from pyterrier_cascade.dcbert import loading
from tests import tiny

QUESTIONS, DOCUMENTS = ["who is it", "what ship launched"], ["a ship", "the town was founded", "x y z"]


def loaded(source, **parts):
    """The module, the tokenizer and the reason why it is untrained."""
    model = loading.load(source, **parts)
    return model.module, model.tokenizer, model.untrained


def made(folder, family="bert", layers=3, **parts):
    return loaded(tiny.save(folder / family, family, layers=layers, outputs=None), **parts)


def batch(tokenizer, texts):
    return dict(tokenizer(texts, padding=True, return_tensors="pt"))


def logits(module, tokenizer, pairs, questions=QUESTIONS, documents=DOCUMENTS):
    of = torch.tensor(pairs).T
    with torch.no_grad():
        return module(*of, batch(tokenizer, questions), batch(tokenizer, documents))
