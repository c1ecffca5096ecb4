"""The monolithic transformer: an encoder and a classifier on its first symbol (CT-4, TA-2)."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from pyterrier_cascade.encoder.batches import token_budget
from pyterrier_cascade.encoder.device import autocast
from pyterrier_cascade.encoder.pairs import TokenPairs


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

    @property
    def layers(self) -> int:
        """The layers that are run."""
        return self.module.config.num_hidden_layers

    @property
    def full_layers(self) -> int:
        """The layers of the encoder that this one was cut from, by which relative cost is counted (CT-34)."""
        return getattr(self.module.config, "full_layers", None) or self.layers

    @property
    def length_limit(self) -> int:
        """The most tokens that the encoder has positions for."""
        config = self.module.config
        positions = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        # RoBERTa's positions start behind its padding id.
        offset = config.pad_token_id + 1 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
        return min(positions - offset, self.tokenizer.model_max_length)


def load(source: str, layers: int | None = None, trust_remote_code: bool = False) -> PairModel:
    """Returns the classifier in a folder or on the Hub; a bare encoder gets a fresh head, and this is said.

    Args:
        source: A folder or a Hub name.
        layers: Keep only the first so many layers (CT-6: the encoder truncated at layer rho(i)).
        trust_remote_code: Whether code that comes with the model may run.
    """
    if source.startswith((".", "/", "~")) and not Path(source).is_dir():
        raise FileNotFoundError(f"there is no folder {source!r}; give one with a config.json, or a name on the Hub")
    trust = {"trust_remote_code": trust_remote_code}
    config = transformers.AutoConfig.from_pretrained(source, **trust)
    full = getattr(config, "full_layers", None) or config.num_hidden_layers
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
    elif config.num_labels > 2:
        raise ValueError(
            f"{source!r} tells {config.num_labels} classes apart; a reranker needs a head of 1 or 2 outputs"
        )
    # A fresh head is drawn alike every time, so that two rankers on the same bare encoder are the same ranker.
    with torch.random.fork_rng(devices=[]), _quiet():
        torch.manual_seed(0)
        module, info = transformers.AutoModelForSequenceClassification.from_pretrained(
            source, config=config, output_loading_info=True, dtype=torch.float32, **trust
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **trust)
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    untrained = None
    if fresh := sorted(info["missing_keys"]):
        untrained = f"the head of {source!r} is fresh ({', '.join(fresh)})"
    elif layers is not None and layers < full:
        untrained = f"the head of {source!r} was trained on layer {full} and now reads layer {layers}"
    return PairModel(module.eval(), tokenizer, untrained)


@contextlib.contextmanager
def _quiet():
    """Silences the library's bar and its report on missing weights, which :func:`load` puts in the user's terms."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


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


def score(
    model: PairModel, pairs: TokenPairs, *, budget: int, device: torch.device, precision: str, progress=None
) -> np.ndarray:
    """Returns the relevance of each input, ``(n_inputs,)``, independent of batch mates and of order.

    Args:
        model: The classifier.
        pairs: The inputs.
        budget: The most tokens of a batch, pads included.
        device: Where to compute.
        precision: ``fp32`` or ``bf16``.
        progress: Called with the number of inputs after each batch.
    """
    # Outside of inference mode: weights that were moved inside it could not be trained any more.
    module = model.module.to(device).eval()
    scores = np.empty(len(pairs.owner))
    for rows in token_budget(pairs.lengths, budget):
        inputs = {name: tensor.to(device) for name, tensor in pairs.batch(rows).items()}
        with torch.inference_mode(), autocast(precision, device):
            logits = module(**inputs).logits
        scores[rows] = relevance(logits.float()).cpu().numpy()
        if progress is not None:
            progress(len(rows))
    return scores
