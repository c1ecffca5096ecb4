"""The plain card."""

import dataclasses
from types import SimpleNamespace

from pyterrier_cascade.card import plain_card, record_text
from pyterrier_cascade.model import TrainedOn

RECORD = TrainedOn(3, 30, 9, "Training(epochs=2)", data="ships")


def test_the_whole_card():
    models = [SimpleNamespace(untrained=None, trained_on=RECORD)] * 2
    assert (
        plain_card("SequentialReranker", "me/x", models)
        == """---
library_name: pyterrier_cascade
pipeline_tag: text-ranking
tags:
- reranking
- pyterrier
---

# SequentialReranker

A reranker for PyTerrier pipelines: a `SequentialReranker` of the Python package `pyterrier_cascade`.

```python
from pyterrier_cascade import SequentialReranker

ranker = SequentialReranker.from_pretrained("me/x")
bm25 >> ranker
```

## Training data

ships
3 questions with 30 candidates, 9 of them positive.
Trained with `Training(epochs=2)`.
"""
    )


def test_a_distillation_needs_no_labels():
    record = dataclasses.replace(RECORD, positives=None, data=None)
    expected = "Not named.\n3 questions with 30 candidates, without labels.\nTrained with `Training(epochs=2)`."
    assert record_text(record) == expected


def test_several_models_with_data_of_their_own():
    models = [
        SimpleNamespace(untrained=None, trained_on=RECORD),
        SimpleNamespace(untrained="the head is fresh", trained_on=RECORD),
        SimpleNamespace(untrained=None, trained_on=None),
    ]
    expected = (
        f"{record_text(RECORD)}\n\nNone: these weights are still to be trained.\n\n"
        "Not known: another library trained these weights.\n"
    )
    assert plain_card("SequentialReranker", "me/x", models).endswith(expected)
