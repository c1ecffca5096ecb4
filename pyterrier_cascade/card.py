"""The model card of a ranker: how it is loaded, and what it was trained on."""

from collections.abc import Iterable

from pyterrier_cascade.model import LoadedModel, TrainedOn

TEMPLATE = """---
library_name: pyterrier_cascade
pipeline_tag: text-ranking
tags:
- reranking
- pyterrier
---

# {kind}

A reranker for PyTerrier pipelines: a `{kind}` of the Python package `pyterrier_cascade`.

```python
from pyterrier_cascade import {kind}

ranker = {kind}.from_pretrained("{name}")
bm25 >> ranker
```

## Training data

{data}
"""


def plain_card(kind: str, name: str, models: Iterable[LoadedModel]) -> str:
    """Returns the card of any ranker as Markdown.

    Args:
        kind: The class of the ranker.
        name: The name that the ranker is loaded by.
        models: Its models; what several were trained on alike is said once.
    """
    data = dict.fromkeys(map(_training_data, models))
    return TEMPLATE.format(kind=kind, name=name, data="\n\n".join(data))


def _training_data(model: LoadedModel) -> str:
    if model.untrained is not None:
        return "None: these weights are still to be trained."
    record = model.trained_on
    return "Not known: another library trained these weights." if record is None else record_text(record)


def record_text(record: TrainedOn) -> str:
    """Returns the record of a training in words."""
    labels = "without labels" if record.positives is None else f"{record.positives} of them positive"
    return (
        f"{record.data or 'Not named.'}\n{record.questions} questions with {record.candidates} candidates, {labels}.\n"
        f"Trained with `{record.training}`."
    )
