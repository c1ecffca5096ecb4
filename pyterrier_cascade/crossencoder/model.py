"""The monolithic transformer: an encoder and a classifier on its first symbol (CT-4, TA-2)."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
import transformers
from torch import nn

from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.families import PADDING_FIRST, Head, check_family
from pyterrier_cascade.encoder.pretrained import pretrained, silenced

TANH_HEADS = ("bert", "roberta", "xlm-roberta", "camembert")
"""The families whose classifier is a dense layer, a tanh and a linear map."""


@dataclass
class PairModel:
    """A Hugging Face sequence classifier with its tokenizer.

    Attributes:
        module: The classifier, in evaluation mode.
        tokenizer: Its fast tokenizer.
        untrained: Why the head's scores mean nothing yet, or None.
    """

    module: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase
    untrained: str | None

    @cached_property
    def executors(self) -> Executors:
        """What runs the encoder layer by layer, and its heads."""
        return Executors(self.module.base_model, self.heads)

    @property
    def heads(self) -> list[Head]:
        """The classifier, as the engine's one head."""
        return [Head(self.layers, getattr(self.encoder_config, "classifier_pooling", "cls"), Classifier(self.module))]

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration."""
        return self.module.config

    @property
    def layers(self) -> int:
        """The layers that the encoder has."""
        return self.encoder_config.num_hidden_layers

    @property
    def full_layers(self) -> int:
        """The layers of the encoder that this one was cut from, by which relative cost is counted (CT-34)."""
        return getattr(self.encoder_config, "full_layers", None) or self.layers

    @property
    def length_limit(self) -> int:
        """The most tokens that the encoder has positions for."""
        config = self.encoder_config
        positions = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        # RoBERTa's positions start behind its padding id.
        offset = config.pad_token_id + 1 if config.model_type in PADDING_FIRST else 0
        return min(positions - offset, self.tokenizer.model_max_length)


class Classifier(nn.Module):
    """A Hugging Face classifier's part above the encoder, from pooled states to relevance.

    Args:
        module: The whole classifier, whose weights are used.
    """

    def __init__(self, module: transformers.PreTrainedModel):
        super().__init__()
        self.pooler = getattr(module.base_model, "pooler", None)
        # DistilBERT's and ModernBERT's; the other heads are one module that takes states of all symbols.
        self.dense = getattr(module, "pre_classifier", None) or getattr(module, "head", None)
        self.relu = module.config.model_type == "distilbert"
        self.classifier = module.classifier

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Returns relevance ``(n,)`` for ``(n, width)``."""
        if self.dense is not None:
            pooled = self.dense(pooled)
            logits = self.classifier(pooled.relu() if self.relu else pooled)
        elif self.pooler is not None:
            logits = self.classifier(self.pooler(pooled[:, None]))
        else:
            logits = self.classifier(pooled[:, None])
        return relevance(logits)


def load(source: str, layers: int | None = None, dense: bool = True, trust_remote_code: bool = False) -> PairModel:
    """Returns the classifier in a folder or on the Hub; a bare encoder gets a fresh head, and this is said.

    Args:
        source: A folder or a Hub name.
        layers: Keep only the first so many layers (CT-6: the encoder truncated at layer rho(i)).
        dense: Whether a fresh head has a dense layer before its tanh, as Hugging Face's heads have (TA-2).
        trust_remote_code: Whether code that comes with the model may run.
    """
    check_folder(source)
    trust = {"trust_remote_code": trust_remote_code}
    config = transformers.AutoConfig.from_pretrained(source, **trust)
    check_family(config)
    own = config.num_hidden_layers
    full = getattr(config, "full_layers", None) or own
    if layers is not None:
        if not 1 <= layers <= config.num_hidden_layers:
            raise ValueError(
                f"layers={layers}, but the encoder {source!r} has {config.num_hidden_layers} layers; "
                f"use 1 to {config.num_hidden_layers}"
            )
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    config.full_layers = full
    labelled = "ForSequenceClassification" in "".join(getattr(config, "architectures", None) or [])
    if not labelled:
        config.num_labels = 2
        if not dense:
            config.dense_head = False
    elif not dense and getattr(config, "dense_head", True):
        raise ValueError(f"dense=False, but the head of {source!r} was trained with a dense layer; give a bare encoder")
    elif config.num_labels > 2:
        raise ValueError(
            f"{source!r} tells {config.num_labels} classes apart; a reranker needs a head of 1 or 2 outputs"
        )
    # A fresh head is drawn alike every time, so that two rankers on the same bare encoder are the same ranker.
    with torch.random.fork_rng(devices=[]), silenced():
        torch.default_generator.manual_seed(0)
        cls = transformers.AutoModelForSequenceClassification
        options = {"config": config, "output_loading_info": True, "dtype": torch.float32, **trust}
        module, info = pretrained(cls, source, **options)
    if not getattr(config, "dense_head", True):
        leave_out_dense(module)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **trust)
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    untrained = None
    if fresh := sorted(info["missing_keys"]):
        untrained = f"the head of {source!r} is fresh ({', '.join(fresh)})"
        module.config.head_trained = False
    elif not getattr(config, "head_trained", True):
        untrained = f"the head of {source!r} was saved before it was trained"
    elif layers is not None and layers < own:
        untrained = f"the head of {source!r} was trained on layer {own} and now reads layer {layers}"
    return PairModel(module.eval(), tokenizer, untrained)


def leave_out_dense(module: transformers.PreTrainedModel) -> None:
    """Fixes the dense layer of a head as the identity, which leaves W_T tanh(x) + B_T of the encoder's x (TA-2).

    The checkpoint remains one that Hugging Face's own class reads, with the same scores.

    Args:
        module: The classifier.
    """
    family = module.config.model_type
    if family not in TANH_HEADS:
        raise ValueError(
            f"dense=False is for heads of a dense layer and a tanh ({', '.join(TANH_HEADS)}), not for those of {family}"
        )
    dense = (module.base_model.pooler or module.classifier).dense
    nn.init.eye_(dense.weight)
    nn.init.zeros_(dense.bias)
    dense.requires_grad_(False)


def relevance(logits: torch.Tensor) -> torch.Tensor:
    """Returns the log-odds of relevance, ``(n,)``, from the logits of one or two classes.

    Same order as p(positive) (CT-12), but without its rounding to 1 where many scores would tie.
    """
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross-entropy on {0, 1} (TA-2, CT-18), for one or two outputs.

    Args:
        logits: ``(n, 1)`` or ``(n, 2)``.
        labels: ``(n,)``, 0 or 1.
    """
    logits = logits.float()
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    return F.cross_entropy(logits, labels.long())
