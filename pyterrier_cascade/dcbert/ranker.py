"""DC-BERT over results frames: from texts, or from a cache of documents (DC-1)."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import check_choices, warn_user
from pyterrier_cascade.dcbert import late
from pyterrier_cascade.dcbert.cache import DocumentCache
from pyterrier_cascade.dcbert.inference import Scorer
from pyterrier_cascade.dcbert.loading import check_parts, load
from pyterrier_cascade.dcbert.scoring import DocumentStates, PairScores, score_candidates
from pyterrier_cascade.dcbert.settings import DCBertTraining
from pyterrier_cascade.encoder.device import PRECISIONS, check_device, device_of, scoring_precision
from pyterrier_cascade.encoder.pairs import TokenPairs, tokenize_texts
from pyterrier_cascade.encoder.passages import PASSAGES
from pyterrier_cascade.encoder.texts import TextEncoder
from pyterrier_cascade.ranker import NeuralRanker
from pyterrier_cascade.store.states import States

INTERACTIONS = ("joint", "late")
ROOM = 2**28
"""About how many bytes the states of documents may have that are encoded together."""

COSTS = dict.fromkeys((frames.COST, frames.FULL_COST, frames.TOKEN_COST, frames.FULL_TOKEN_COST), np.float64)


class DCBERT(NeuralRanker):
    """Encodes query and document apart, and joins their states in K layers (DC-1 to DC-6).

    Choose it where the corpus is known in advance: :meth:`encode` keeps all documents' states on disk, and
    ``cache.reranker()`` then computes the query and the joint layers only::

        cache = dcbert.encode(dataset.get_corpus_iter(), "corpus.dc")
        bm25 >> cache.reranker()

    Without a cache, ``bm25 >> dcbert`` encodes the text of every candidate and gives the same scores: log-odds of
    relevance. The result has the query columns that :data:`~pyterrier_cascade.RelativeCost` reads.

    Args:
        model: A folder or a Hub name: a DC-BERT, or an encoder (bare, or a trained cross-encoder), which gets joint
            layers that start from its last ones, to be trained.
        interaction: ``"joint"``, or ``"late"``: the mean over the query's tokens of the best cosine among the
            document's. It needs no training and runs no joint layer.
        passages: A document longer than the limit is its ``"first"`` passage, or scores as the ``"max"`` or ``"mean"``
            of all its passages.
        query_length: The most tokens of a query; 64 unless given. A longer one is cut, with a warning.
        document_length: The most tokens of a passage; unless given, all positions that the query leaves, but at most
            512 and the tokenizer's own number.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        precision: The precision of the encoders: ``"auto"`` is bf16 on GPUs that have it, fp16 on other GPUs, and fp32
            on a CPU. Or ``"fp32"``, ``"bf16"`` (where the hardware has it), or ``"fp16"``, in place of which a CPU
            computes in fp32, so that it reads the caches of GPUs. The interaction is computed in fp32.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: How :meth:`fit` trains.
    """

    def __init__(
        self,
        model: str | Checkpoint,
        *,
        interaction: str = "joint",
        passages: str = "first",
        query_length: int | None = None,
        document_length: int | None = None,
        device: str | None = None,
        precision: str = "auto",
        verbose: bool = False,
        text_field: str = "text",
        training: DCBertTraining = DCBertTraining(),
    ):
        self.model = Checkpoint.of(load, model, "DCBERT")
        self.interaction, self.passages = interaction, passages
        self.query_length, self.document_length = query_length, document_length
        self.device, self.precision, self.verbose = device, precision, verbose
        self.text_field, self.training = text_field, training
        check_choices(interaction=(interaction, INTERACTIONS), passages=(passages, PASSAGES))
        check_choices(precision=(precision, PRECISIONS))
        check_device(device)
        for name in ("query_length", "document_length"):
            length = getattr(self, name)
            if length is not None and length < 4:
                raise ValueError(f"{name}={length!r} leaves no room for a word; use 4 tokens or more")
        if not isinstance(training, DCBertTraining):
            raise ValueError(f"training must be DCBertTraining(...), not {training!r}")

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        *,
        variant: str | None = None,
        joint_layers: int | None = None,
        lower_layers: int | None = None,
        tied: bool | None = None,
        head: str | None = None,
        trust_remote_code: bool = False,
        **settings,
    ) -> "DCBERT":
        """Returns a DC-BERT on the weights in a folder or on the Hub; nothing is loaded before they are needed.

        Args:
            name_or_path: A folder or a Hub name: a DC-BERT, or an encoder with or without a classifier.
            variant: The interaction on a bare encoder: ``"transformer"`` layers (the default); ``"one_way"`` layers, in
                which the query reads the document and not the other way round; or one of the variants ``"linear"`` and
                ``"lstm"`` that the paper compares with (DC-35).
            joint_layers: K, the joint layers on a bare encoder; 1 by default (DC-9).
            lower_layers: The layers of both encoders; all by default (DC-3).
            tied: Whether one encoder serves queries and documents; two by default (DC-4).
            head: ``"paper"`` reads both CLS outputs (DC-6), ``"compare"`` their product and distance too, and
                ``"late"`` adds late interaction's score, with a trained weight.
            trust_remote_code: Whether code that comes with a bare encoder may run.
            **settings: Any of the class's settings.
        """
        parts = {
            "variant": variant,
            "joint_layers": joint_layers,
            "lower_layers": lower_layers,
            "tied": tied,
            "head": head,
        }
        parts = {name: value for name, value in parts.items() if value is not None}
        check_parts(**parts)
        if trust_remote_code:
            parts["trust_remote_code"] = True
        return cls(Checkpoint.of(load, name_or_path, cls.__name__, **parts), **settings)

    def new_columns(self):
        """Returns the cost columns."""
        return COSTS

    @property
    def lengths(self) -> tuple[int, int]:
        """The most tokens of a query and of a passage."""
        model = self.model.loaded
        query, document = model.lengths(self.query_length, self.document_length)
        if query + document > model.length_limit or document < 4:
            raise ValueError(
                f"query_length={query} and document_length={document} are {query + document} tokens, but "
                f"{self.model!r} has positions for {model.length_limit}; a document needs 4 or more"
            )
        return query, document

    def reading(self):
        """Returns the settings that decide which part of a text the model reads, with the lengths that hold."""
        query, document = self.lengths
        return super().reading() | {"query_length": query, "document_length": document, "passages": self.passages}

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and the cost columns."""
        self.warn_if_untrained()
        return score_candidates(self, frame, blocks, frames.texts(frame, self.text_field))

    def room(self, texts: list[str]) -> np.ndarray:
        """Returns the share of :data:`ROOM` that the states of each text may take, ``(n,)``."""
        # A token stands for 4 bytes or more of a text.
        n_bytes = np.fromiter((len(text.encode("utf-8", "surrogatepass")) for text in texts), np.int64, len(texts))
        n_tokens = n_bytes / 4 + 2
        if self.passages == "first":
            n_tokens = np.minimum(n_tokens, self.lengths[1])
        return n_tokens * (4 * self.model.loaded.width / ROOM)

    def costs(
        self, frame: pd.DataFrame, blocks: frames.Blocks, scores: PairScores, cached: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the cost columns: the query's encoding once, the joint layers for each candidate (DC-10).

        A joint layer counts in full, though only two rows of the last one are computed. By tokens, a one-way layer
        counts those of the query.

        Args:
            frame: The candidates.
            blocks: Their blocks.
            scores: Their scores, with the numbers of tokens.
            cached: Whether each row's document came from a cache; otherwise its encoding counts too.
        """
        model = self.model.loaded
        joint = model.joint_layers if self.interaction == "joint" else 0
        per_document = np.where(cached, 0, model.lower_layers)
        once = model.lower_layers / blocks.sizes[blocks.codes]
        query_tokens = scores.n_inputs * scores.query_tokens
        pair_tokens = query_tokens + scores.tokens
        joint_tokens = joint * (query_tokens if model.is_one_way else pair_tokens)
        spent = (
            once + (joint + per_document) * scores.n_inputs,
            once * scores.query_tokens + joint_tokens + per_document * scores.tokens,
        )
        whole = (model.full_layers * scores.n_inputs, model.full_layers * pair_tokens)
        return frames.charged_in_all(frame, blocks, spent, whole)

    def warn_if_untrained(self) -> None:
        """Warns if the scores come from joint layers that were never trained."""
        if self.interaction == "joint":
            self.model.loaded.warn_if_untrained()

    def scorer(self) -> Scorer:
        """Returns the function that scores the documents of a query."""
        device = device_of(self.device)
        return late.scorer(device) if self.interaction == "late" else self.model.loaded.scorer(device)

    def questions(self, queries: Sequence[str]) -> list[torch.Tensor]:
        """Returns the states of queries, each ``(n_tokens, width)``; equal queries are encoded once."""
        codes, unique = frames.distinct(queries)
        pairs = self.tokenized(unique, "question")
        states = self.text_encoder("question").states(pairs).split(pairs.lengths.tolist())
        return [states[code] for code in codes]

    def tokenized(self, texts: list[str], side: str) -> TokenPairs:
        """Returns the tokens of queries or documents, and warns about queries that are cut.

        Args:
            texts: The texts.
            side: ``"question"`` or ``"document"``.
        """
        query, document = self.lengths
        with self.model.lock:
            tokenizer = self.model.loaded.tokenizer
            if side == "document":
                return tokenize_texts(tokenizer, texts, max_length=document, passages=self.passages != "first")
            pairs = tokenize_texts(tokenizer, texts, max_length=query, passages=True)
        # A query of several passages is too long; its first passage is the query, cut.
        n_cut = int((np.bincount(pairs.owner, minlength=len(texts)) > 1).sum())
        if not n_cut:
            return pairs
        warn_user(
            f"{n_cut} of {len(texts)} queries have more than {query} tokens and are cut; set query_length (and encode "
            "documents anew)"
        )
        return pairs.select(np.flatnonzero(np.diff(pairs.owner, prepend=-1)))

    def encoded_texts(self, texts: list[str]) -> tuple[DocumentStates, np.ndarray]:
        """Returns the states of documents, equal ones encoded once, and the number of each text, ``(n,)``."""
        codes, unique = frames.distinct(texts)
        pairs = self.tokenized(unique, "document")
        entries = States(self.text_encoder("document").states(pairs), pairs.lengths)
        return DocumentStates(entries, np.bincount(pairs.owner)), codes

    def text_encoder(self, side: str) -> TextEncoder:
        """Returns the encoder of ``"question"`` or ``"document"``."""
        device, precision = device_of(self.device), self.computed_precision
        if precision == "fp16" and device.type == "cpu":
            precision = "fp32"
        return self.model.loaded.encoder(side, device, precision)

    @property
    def computed_precision(self) -> str:
        """The precision of the encoders on this machine, whatever the user calls it."""
        return scoring_precision(self.precision, device_of(self.device)) if self.precision == "auto" else self.precision

    def document_fingerprint(self) -> str:
        """Returns a hash of the documents' encoder and of the settings that their states depend on."""
        passages = self.passages != "first"
        return self.model.loaded.document_fingerprint((self.lengths[1], passages, self.computed_precision))

    def encode(self, corpus: Any, path: str | Path, *, dtype: str = "fp16", **options) -> DocumentCache:
        """Encodes a corpus and returns the cache; a cache that was begun at the path is completed.

        Args:
            corpus: A data frame, an iterable of dictionaries with ``docno`` and the text, or a data set.
            path: The folder of the cache.
            dtype: ``"fp16"``, or ``"int8"`` with a scale for each token: half the disk.
            **options: Those of :meth:`DocumentCache.build <pyterrier_cascade.DocumentCache.build>`.
        """
        if self.model.fitted:
            raise ValueError(
                "these weights were trained and not saved, so that the cache could not name them; "
                "call save_pretrained(folder), then encode"
            )
        model, source = self.model.loaded, self.model.source
        meta = {
            # A reader may have another current folder, and decides for itself which code may run.
            "model": os.path.abspath(source) if os.path.isdir(source) else source,
            "parts": {name: value for name, value in self.model.options.items() if name != "trust_remote_code"},
            "fingerprint": self.document_fingerprint(),
            "width": model.width,
            "max_length": self.lengths[1],
            "query_length": self.query_length,
            "document_length": self.document_length,
            "passages": self.passages,
            "precision": self.computed_precision,
        }
        options = {"verbose": self.verbose, "text_field": self.text_field} | options
        return DocumentCache.build(path, corpus, Encoding(self), meta=meta, dtype=dtype, **options)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains the joint layers, then everything, on labelled lists (DC-7 to DC-9).

        The scores of another ranker in a column ``teacher`` are learnt too.
        """
        from pyterrier_cascade.dcbert.training import fit

        fit(self, train, dev, dev_qrels)


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The function that fills a cache: it gives the token states of texts, here or on another machine.

    Attributes:
        ranker: The ranker whose document encoder it is.
    """

    ranker: DCBERT

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns states, lengths and owners as :meth:`DocumentCache.build` takes them."""
        pairs = self.ranker.tokenized(texts, "document")
        return self.ranker.text_encoder("document").states(pairs).numpy(), pairs.lengths, pairs.owner
