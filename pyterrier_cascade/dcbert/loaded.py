"""A DC-BERT that is in memory: texts to states, states to scores."""

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.dcbert import late
from pyterrier_cascade.dcbert import model as dcbert
from pyterrier_cascade.dcbert.interaction import Interaction, tensor
from pyterrier_cascade.dcbert.model import DCBert, Encoded
from pyterrier_cascade.encoder.families import Weights, family_of, position_limit
from pyterrier_cascade.encoder.linear import linear_for
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.texts import TextEncoder
from pyterrier_cascade.encoder.weight_cache import WeightCache
from pyterrier_cascade.encoder.workers import calling_thread, workers

Scorer = Callable[[torch.Tensor, Any], torch.Tensor]
"""Gives each of some documents (:class:`~pyterrier_cascade.dcbert.cache.States`) a score for a question's states."""


@dataclass
class DCBertModel:
    """A DC-BERT with its tokenizer.

    Attributes:
        module: The model, in evaluation mode.
        tokenizer: Its fast tokenizer.
        untrained: Why its scores mean nothing yet, or None.
    """

    module: DCBert
    tokenizer: transformers.PreTrainedTokenizerBase
    untrained: str | None

    @cached_property
    def _made(self) -> WeightCache:
        return WeightCache(self.module.parameters)

    @property
    def lower_layers(self) -> int:
        """The layers of the encoders."""
        return self.module.config.lower_layers or self.full_layers

    @property
    def joint_layers(self) -> int:
        """The joint layers; the variants have none."""
        return self.module.config.joint_layers if self.module.config.interaction == "transformer" else 0

    @cached_property
    def full_layers(self) -> int:
        """The layers of the encoder that this was made of, by which relative cost is counted."""
        return self.module.config.full_layers

    @cached_property
    def length_limit(self) -> int:
        """The most tokens of question and document together."""
        return position_limit(self.module.config.encoder_config())

    @cached_property
    def width(self) -> int:
        """The numbers in a token's state."""
        return self.module.config.encoder_config().hidden_size

    def encoder(self, side: str, device: torch.device, precision: str) -> TextEncoder:
        """Returns what encodes questions or documents.

        Args:
            side: ``"question"`` or ``"document"``.
            device: Where.
            precision: ``"fp32"`` or ``"bf16"``.
        """
        module = self.module.encoder_of(side)
        return self._made.get((id(module), device, precision), lambda: TextEncoder(module, device, precision))

    def scorer(self, device: torch.device) -> Scorer:
        """Returns what joins question and documents."""
        return self._made.get(("joint", device), lambda: _scorer(self.module.joint, device))

    def document_fingerprint(self, settings: Sequence) -> str:
        """Returns a hash of all that documents' states depend on, so that one cache serves many joint layers.

        Args:
            settings: What else they depend on.
        """
        settings = tuple(settings)
        return self._made.get(("fingerprint", settings), lambda: self._fingerprint(settings))

    def _fingerprint(self, settings: tuple) -> str:
        digest = hashlib.sha256(repr(settings).encode())
        # Not how it was last asked to cut and to pad.
        tokenizer = json.loads(self.tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
        digest.update(json.dumps(tokenizer).encode())
        for name, weight in weights_of(self.module.encoder_of("document")).items():
            digest.update(name.encode())
            digest.update(weight.numpy())
        return digest.hexdigest()


def load(source: str, **parts) -> DCBertModel:
    """Returns the DC-BERT in a folder or on the Hub, or one made of a bare encoder; :func:`..model.load` has the parts.

    Args:
        source: A folder or a Hub name.
        **parts: Of what to make it.
    """
    return DCBertModel(*dcbert.load(source, **parts))


def _scorer(joint: nn.Module, device: torch.device) -> Scorer:
    if isinstance(joint, dcbert.JointLayers):
        make = linear_for(device, torch.float32)
        layers = family_of(joint.encoder.config).layers(joint.encoder, Weights(device, torch.float32, make))
        join = Interaction(layers, joint.positions.weight, joint.types.weight, joint.head, device)
        if joint.late is None:
            return join.score
        weight = dcbert.LATE_SCALE * joint.late.item()
        return lambda question, documents: join.score(question, documents) + weight * late.score(question, documents)

    @torch.inference_mode()
    def score(question: torch.Tensor, documents) -> torch.Tensor:
        lengths = torch.from_numpy(np.asarray(documents.lengths, dtype=np.int64)).to(device)
        states = tensor(documents.states, device).float()
        if documents.scales is not None:
            states = states * tensor(documents.scales, device)[:, None].float()
        asked = Encoded(question.to(device), torch.tensor([len(question)], device=device))
        numbers = torch.arange(len(lengths), device=device)
        return joint.to(device)(asked, Encoded(states, lengths), torch.zeros_like(numbers), numbers).cpu()

    return score


def late_scorer(question: torch.Tensor, documents) -> torch.Tensor:
    """Returns late interaction's scores ``(n,)``: nothing that was trained takes part."""
    return late.score(question, documents)


def in_parts(
    begin: Callable[[int, slice], Callable[[], Any]],
    counts: Sequence[int],
    device: torch.device,
    progress: Callable[[int], object],
) -> list[list[Any]]:
    """Returns what is made of each question's documents, part by part; a thread does a part at a time.

    Args:
        begin: Given a question's number and a part of its documents, lets the disk begin and returns the work. The
            calling thread does so for the next parts while threads work on others.
        counts: How many documents each question has, at least one.
        device: Where the work is done.
        progress: Called with the number of documents that are done, as they are.
    """
    found = [[] for _ in counts]
    with (workers if device.type == "cpu" else calling_thread)() as pool:
        # A few questions would leave threads idle: their documents are divided.
        shares = -(-2 * pool.n_threads // len(counts)) if len(counts) < 2 * pool.n_threads else 1
        parts = []
        for number, count in enumerate(counts):
            edges = np.unique(np.linspace(0, count, shares + 1).astype(int)).tolist()
            parts += [(number, slice(start, end)) for start, end in itertools.pairwise(edges)]
        results = pool.map(lambda work: work(), (begin(*one) for one in parts))
        for (number, part), result in zip(parts, results, strict=True):
            found[number].append(result)
            progress(part.stop - part.start)
    return found


def divided(states: torch.Tensor, pairs: TokenPairs) -> list[torch.Tensor]:
    """Returns the states of each text, ``(n_tokens, width)``."""
    return list(states.split(pairs.lengths.tolist()))
