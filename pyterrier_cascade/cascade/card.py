"""The model card of a Cascade Transformer: what it was trained on, what its heads and its cascades are worth."""

from pyterrier_cascade.cascade.model import CascadeConfig

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


def model_card(config: CascadeConfig, name: str) -> str:
    """Returns the card as Markdown, by what the configuration remembers of the training.

    Args:
        config: The model's.
        name: What the model is loaded by.
    """
    encoder, trained = config.encoder_config, config.trained_on
    if trained:
        data = (
            f"{trained['data'] or 'Not named.'}\n{trained['questions']} questions with {trained['candidates']} "
            f"candidates, {trained['positives']} of them positive.\nTrained with `{trained['training']}`."
        )
    else:
        data = "None: the heads are fresh."
    quality = "Not measured: no development questions were given."
    if trained.get("table"):
        rows = "\n".join(f"| {name} | {cost:.3f} | {value:.4f} |" for name, cost, value in trained["table"])
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
