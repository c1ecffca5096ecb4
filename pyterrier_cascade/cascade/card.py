"""The model card of a Cascade Transformer: its training data, and the quality and cost of its heads and cascades."""

from pyterrier_cascade.card import record_text
from pyterrier_cascade.cascade.model import CascadeConfig
from pyterrier_cascade.model import TrainedOn

TEMPLATE = """---
library_name: pyterrier_cascade
pipeline_tag: text-ranking
tags:
- cascade-transformer
- reranking
- pyterrier
---

# Cascade Transformer

A reranker that drops candidates on the way: one {family} encoder of {depth} layers x {width} with scoring heads after
layers {layers} (pooling `{pooling}`, heads of {head_width} hidden units, {outputs} outputs).

```python
from pyterrier_cascade import Cascade

cascade = Cascade.from_pretrained("{name}")
bm25 >> cascade(alpha=0.4)
```

## Training data

{data}

## Quality and cost

{quality}
"""


def model_card(config: CascadeConfig, trained_on: TrainedOn | None, name: str) -> str:
    """Returns the card as Markdown.

    Args:
        config: The configuration of the model.
        trained_on: The record of its training; None for fresh heads.
        name: The name that the model is loaded by.
    """
    encoder = config.encoder_config
    data, quality = "None: the heads are fresh.", "Not measured: no development questions were given."
    if trained_on is not None:
        data = record_text(trained_on)
        if trained_on.quality:
            rows = "\n".join(f"| {row} | {cost:.3f} | {value:.4f} |" for row, cost, value in trained_on.quality)
            quality = (
                "MAP on the development questions, which also chose the weights; cost in layers, relative to all.\n\n"
                f"| | cost | MAP |\n|---|---|---|\n{rows}"
            )
    return TEMPLATE.format(
        name=name,
        family=encoder.model_type,
        depth=encoder.num_hidden_layers,
        width=encoder.hidden_size,
        layers=", ".join(map(str, config.layers)),
        pooling=config.pooling,
        head_width=config.head_width,
        outputs=config.outputs,
        data=data,
        quality=quality,
    )
