"""The model card of a Cascade Transformer: its training data, and the quality and cost of its heads and cascades."""

from collections.abc import Sequence

from pyterrier_cascade.card import record_text
from pyterrier_cascade.cascade.model import CascadeConfig
from pyterrier_cascade.early_exit.certificate import Certificate
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
layers {layers} (pooling `{pooling}`, heads of {head_width} hidden units, {outputs} outputs).{last}

```python
from pyterrier_cascade import Cascade

cascade = Cascade.from_pretrained("{name}")
bm25 >> cascade(alpha=0.4)
```

## Training data

{data}

## Quality and cost

{quality}
{guarantees}"""

GUARANTEES = """
## Guarantees

Each holds for new queries of the kind that was tested, and for the settings of the ranker that was tested.
{rows}"""


def model_card(config: CascadeConfig, trained_on: TrainedOn | None, name: str) -> str:
    """Returns the card as Markdown.

    Args:
        config: The configuration of the model.
        trained_on: The record of its training; None for fresh heads.
        name: The name that the model is loaded by.
    """
    encoder = config.encoder_config
    return TEMPLATE.format(
        name=name,
        family=encoder.model_type,
        depth=encoder.num_hidden_layers,
        width=encoder.hidden_size,
        layers=", ".join(map(str, config.layers)),
        pooling=config.pooling,
        head_width=config.head_width,
        outputs=config.outputs,
        last=" Its last head is the classifier of the cross-encoder\nthat it was made of." if config.converted else "",
        data="None: the heads are fresh." if trained_on is None else record_text(trained_on),
        quality=_quality(trained_on),
        guarantees=_guarantees(config.certificates),
    )


def _quality(trained_on: TrainedOn | None) -> str:
    """Returns what was measured after a training or a distillation, as Markdown."""
    if trained_on is not None and trained_on.agreement:
        rows = "\n".join(
            f"| head at layer {layer} | {correlation:.3f} | {first:.3f} | {gain:.3f} |"
            for layer, correlation, first, gain in trained_on.agreement
        )
        return (
            "Agreement with the last head on held-out questions: the correlation of scores, the share of equal first "
            f"answers, and\nNDCG@10 against its ranking.\n\n| | correlation | first answer | NDCG@10 |\n"
            f"|---|---|---|---|\n{rows}"
        )
    if trained_on is not None and trained_on.quality:
        rows = "\n".join(f"| {row} | {cost:.3f} | {value:.4f} |" for row, cost, value in trained_on.quality)
        return (
            "MAP on the development questions, which also chose the weights; cost in layers, relative to all.\n\n"
            f"| | cost | MAP |\n|---|---|---|\n{rows}"
        )
    return "Not measured: no development questions were given."


def _guarantees(certificates: Sequence[dict]) -> str:
    """Returns the section of the certificates; nothing where there are none."""
    if not certificates:
        return ""
    found = map(Certificate.from_config, certificates)
    return GUARANTEES.format(rows="".join(f"\n- {one}\n  Run it as `cascade({one.setting})`.\n" for one in found))
