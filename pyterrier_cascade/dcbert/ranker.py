"""DC-BERT over results frames: from texts, or from a cache of documents (DC-1)."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint, weights_of
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.dcbert import loaded
from pyterrier_cascade.dcbert.cache import DocumentCache
from pyterrier_cascade.dcbert.joining import PASSAGES, Joined, join, slabs
from pyterrier_cascade.dcbert.model import check_parts
from pyterrier_cascade.dcbert.settings import DCBertTraining
from pyterrier_cascade.dcbert.sources import TextDocuments
from pyterrier_cascade.encoder.device import device_of, has_bf16
from pyterrier_cascade.encoder.pairs import TokenPairs, tokenize_texts
from pyterrier_cascade.ranker import NeuralRanker

INTERACTIONS = ("joint", "late")
QUERY_LENGTH = 64
ROOM = 2**28
"""The bytes of states of documents that are encoded together, about."""

COSTS = dict.fromkeys((frames.COST, frames.FULL_COST, frames.TOKEN_COST, frames.FULL_TOKEN_COST), np.float64)


class DCBERT(NeuralRanker):
    """Encodes query and document apart, and joins their states in K layers (DC-1 to DC-6).

    Choose it where the corpus is known in advance: :meth:`encode` keeps all documents' states on disk, and
    ``cache.reranker()`` then computes the query and the joint layers only::

        cache = dcbert.encode(dataset.get_corpus_iter(), "corpus.dc")
        bm25 >> cache.reranker()

    Without a cache, ``bm25 >> dcbert`` encodes every candidate's text and gives the same scores, which are log-odds of
    relevance. The result has the query columns that :data:`~pyterrier_cascade.RelativeCost` reads.

    Args:
        model: A folder or a Hub name: a DC-BERT, or an encoder (bare, or a trained cross-encoder), which gets joint
            layers that start from its last ones, to be trained.
        interaction: ``"joint"``, or ``"late"``: the mean over the query's tokens of the best cosine among the
            document's, which needs no training and takes none of the joint layers.
        passages: A document longer than the limit is its ``"first"`` passage, or scores as the ``"max"`` or ``"mean"``
            of all its passages.
        query_length: The most tokens of a query; 64 unless given. A longer one is cut, with a warning.
        document_length: The most tokens of a passage; what the query leaves of the positions unless given.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        precision: Of the encoders, ``"fp32"`` or ``"bf16"``; the interaction is computed in fp32.
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
        precision: str = "fp32",
        verbose: bool = False,
        text_field: str = "text",
        training: DCBertTraining = DCBertTraining(),
    ):
        self.model = model if isinstance(model, Checkpoint) else Checkpoint(loaded.load, model)
        self.interaction, self.passages = interaction, passages
        self.query_length, self.document_length = query_length, document_length
        self.device, self.precision, self.verbose = device, precision, verbose
        self.text_field, self.training = text_field, training
        check_choices(interaction=(interaction, INTERACTIONS), passages=(passages, PASSAGES))
        check_choices(precision=(precision, ("fp32", "bf16")))
        for name in ("query_length", "document_length"):
            length = getattr(self, name)
            if length is not None and length < 4:
                raise ValueError(f"{name}={length!r} leaves no room for a word; use 4 tokens or more")
        if not isinstance(training, DCBertTraining):
            raise ValueError(f"a DC-BERT is trained as DCBertTraining(...) says, not {training!r}")

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
            variant: What joins the states of a bare encoder: ``"transformer"`` layers, or ``"linear"`` or ``"lstm"``,
                which the paper compares them with (DC-35).
            joint_layers: K, the joint layers on a bare encoder; 1 by default (DC-9).
            lower_layers: The layers of both encoders; all by default (DC-3).
            tied: Whether one encoder serves queries and documents; two by default (DC-4).
            head: ``"paper"`` reads both CLS outputs (DC-6), ``"compare"`` their product and distance too, and
                ``"late"`` adds late interaction's score, with a trained weight.
            trust_remote_code: Whether code that comes with a bare encoder may run.
            **settings: Any of the class's settings.
        """
        check_parts(variant, joint_layers, lower_layers, tied, head)
        parts = {
            "interaction": variant,
            "joint_layers": joint_layers,
            "lower_layers": lower_layers,
            "tied": tied,
            "head": head,
            "trust_remote_code": trust_remote_code or None,
        }
        parts = {name: value for name, value in parts.items() if value is not None}
        return cls(Checkpoint(loaded.load, name_or_path, **parts), **settings)

    def new_columns(self):
        """Returns the cost columns."""
        return COSTS

    @property
    def lengths(self) -> tuple[int, int]:
        """The most tokens of a query and of a passage."""
        limit = self.model.loaded.length_limit
        query = self.query_length or min(QUERY_LENGTH, limit // 4)
        document = limit - query if self.document_length is None else self.document_length
        if query + document > limit or document < 4:
            raise ValueError(
                f"query_length={query} and document_length={document} are {query + document} tokens, but "
                f"{self.model!r} has positions for {limit}; a document needs 4 or more"
            )
        return query, document

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and what it cost."""
        self.warn_if_untrained()
        joined = self._joined(frame, blocks)
        return {"score": joined.scores, **self.costs(frame, blocks, joined, np.zeros(len(frame), bool))}

    def _joined(self, frame: pd.DataFrame, blocks: frames.Blocks) -> Joined:
        texts = frames.texts(frame, self.text_field)
        queries = frames.texts(frame, "query")
        joined = Joined.empty(len(frame))
        with pt.tqdm(total=len(frame), desc="DCBERT", unit="pair", disable=not self.verbose) as bar:
            for part in slabs(list(blocks), self.room(texts)):
                rows = np.concatenate(part)
                documents, codes = self.encoded_texts([texts[row] for row in rows])
                at = dict(zip(rows.tolist(), codes.tolist(), strict=True))
                numbers = [np.array([at[row] for row in block]) for block in part]
                questions = self.questions([queries[block[0]] for block in part])
                found = join(self, questions, documents, numbers, bar.update)
                for block, one in zip(part, found, strict=True):
                    joined.put(block, one)
        return joined

    def room(self, texts: list[str]) -> np.ndarray:
        """Returns the share of :data:`ROOM` that each text's states may take, ``(n,)``: a token is 4 bytes or more."""
        n_bytes = np.fromiter((len(text.encode("utf-8", "surrogatepass")) for text in texts), np.int64, len(texts))
        n_tokens = n_bytes / 4 + 2
        if self.passages == "first":
            n_tokens = np.minimum(n_tokens, self.lengths[1])
        return n_tokens * (4 * self.model.loaded.width / ROOM)

    def costs(self, frame: pd.DataFrame, blocks: frames.Blocks, joined: "Joined", cached: np.ndarray) -> dict:
        """Returns the cost columns: the query's encoding once, the joint layers for each candidate (DC-10).

        A joint layer counts in full, though of the last one only two rows are computed.

        Args:
            frame: The candidates.
            blocks: Their blocks.
            joined: What was computed.
            cached: Whether each row's document came from a cache; otherwise its encoding counts too.
        """
        model = self.model.loaded
        joint = model.joint_layers if self.interaction == "joint" else 0
        per_document = np.where(cached, 0, model.lower_layers)
        once = model.lower_layers / blocks.sizes[blocks.codes]
        pair_tokens = joined.n_inputs * joined.query_tokens + joined.tokens
        spent = (
            once + (joint + per_document) * joined.n_inputs,
            once * joined.query_tokens + joint * pair_tokens + per_document * joined.tokens,
        )
        whole = (model.full_layers * joined.n_inputs, model.full_layers * pair_tokens)
        return frames.charged_in_all(frame, blocks, spent, whole)

    def warn_if_untrained(self) -> None:
        """Warns where joint layers are asked that were never trained."""
        untrained = self.model.loaded.untrained
        if untrained and self.interaction == "joint":
            warnings.warn(
                f"{untrained}: train them with fit() before scores mean anything, or use interaction='late'",
                stacklevel=5,
            )

    def scorer(self) -> loaded.Scorer:
        """Returns what gives a query's documents their scores."""
        if self.interaction == "late":
            return loaded.late_scorer
        return self.model.loaded.scorer(device_of(self.device))

    def questions(self, queries: Sequence[str]) -> list:
        """Returns the states of queries, each ``(n_tokens, width)``; equal ones are encoded once."""
        codes, unique = frames.distinct(queries)
        pairs = self.tokenized(unique, "question")
        model = self.model.loaded
        states = model.encoder("question", device_of(self.device), self.precision).states(pairs)
        divided = loaded.divided(states, pairs)
        return [divided[code] for code in codes]

    def tokenized(self, texts: list[str], side: str) -> TokenPairs:
        """Returns the tokens of queries or documents; queries that are cut are said."""
        query, document = self.lengths
        with self.model.lock:
            tokenizer = self.model.loaded.tokenizer
            if side == "document":
                return tokenize_texts(tokenizer, texts, max_length=document, passages=self.passages != "first")
            # One token more shows which are too long.
            lengths = tokenize_texts(tokenizer, texts, max_length=query + 1).lengths
            if (lengths > query).any():
                warnings.warn(
                    f"{int((lengths > query).sum())} of {len(texts)} queries have more than {query} tokens and are "
                    "cut; set query_length (and encode documents anew)",
                    stacklevel=2,
                )
            return tokenize_texts(tokenizer, texts, max_length=query)

    def encoded_texts(self, texts: list[str], progress: Callable = lambda n: None) -> tuple[TextDocuments, np.ndarray]:
        """Returns the states of documents, equal ones encoded once, and the number of each text, ``(n,)``."""
        codes, unique = frames.distinct(texts)
        pairs = self.tokenized(unique, "document")
        encoder = self.model.loaded.encoder("document", device_of(self.device), self.precision)
        return TextDocuments(encoder.states(pairs, progress), pairs), codes

    def document_fingerprint(self) -> str:
        """Returns a hash of the documents' encoder and of the settings that their states depend on."""
        passages = self.passages != "first"
        return self.model.loaded.document_fingerprint((self.lengths[1], passages, self.precision))

    def encode(self, corpus: Iterable[dict], path: str | Path, *, dtype: str = "fp16", **options) -> DocumentCache:
        """Encodes a corpus and returns the cache; one that was begun at the path is completed.

        Args:
            corpus: Documents as dictionaries with ``docno`` and the text.
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
            # Who reads it may stand in another folder; and code that may run is their decision.
            "model": os.path.abspath(source) if os.path.isdir(source) else source,
            "parts": {name: value for name, value in self.model.options.items() if name != "trust_remote_code"},
            "fingerprint": self.document_fingerprint(),
            "width": model.width,
            "max_length": self.lengths[1],
            "query_length": self.query_length,
            "document_length": self.document_length,
            "passages": self.passages,
            "precision": self.precision,
        }
        options = {"verbose": self.verbose, "text_field": self.text_field} | options
        return DocumentCache.build(path, corpus, Encoding(self), meta=meta, dtype=dtype, **options)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains the joint layers, then everything, on labelled lists (DC-7 to DC-9).

        A column ``teacher`` with another ranker's scores is learnt from too.
        """
        from pyterrier_cascade.dcbert.training import Loss, phases
        from pyterrier_cascade.training.trainer import train_model

        settings, model, device = self.training, self.model.loaded, device_of(self.device)
        if settings.random_first and "teacher" in train.columns:
            raise ValueError("random_first has no scores of the teacher for random negatives; use one of them")
        examples, history, best = self._examples(train), [], (-1.0, None)
        ours = self(interaction="joint")
        for frozen in (True, False):
            if not (settings.frozen_epochs if frozen else settings.epochs):
                continue
            name = "frozen" if frozen else "all"
            folder = settings.folder and str(Path(settings.folder) / name)
            n_epochs = settings.frozen_epochs if frozen else settings.epochs
            now = dataclasses.replace(settings, folder=folder, epochs=n_epochs)
            given = examples
            if frozen:
                sides = (("question", examples.questions), ("document", examples.documents))
                given = dataclasses.replace(examples, states=tuple(ours._states(*side).half() for side in sides))
            given, epochs = phases(given, settings, frozen)
            for encoder in model.module.encoders.values():
                encoder.requires_grad_(not frozen)
            loss = Loss(settings, sum(map(len, epochs)))
            try:
                course = train_model(
                    model.module,
                    given,
                    now,
                    epochs=epochs,
                    device=device,
                    compute_loss=loss,
                    measure_dev=None if dev is None else ours._measure(dev, dev_qrels, frozen),
                    dev=frames.digest([dev, dev_qrels], self.text_field, self.passages, self.lengths),
                    verbose=self.verbose,
                )
            finally:
                model.module.requires_grad_(True)
            loss.say("the first phase, with frozen encoders," if frozen else "the training of everything")
            before = history[-1]["epoch"] if history else 0
            history += [{**row, "phase": name, "epoch": before + row["epoch"]} for row in course]
            if dev is not None:
                reached = max(row[settings.watched] for row in course if settings.watched in row)
                if reached > best[0]:
                    best = (reached, {name: w.clone() for name, w in weights_of(model.module).items()})
                else:
                    model.module.load_state_dict(best[1])
        self.model.mark_fitted(
            history,
            trained_on={
                "questions": len(examples.questions.lengths),
                "candidates": len(examples.labels),
                "positives": int(examples.labels.sum()),
                "training": repr(settings),
            },
        )

    def _examples(self, frame: pd.DataFrame):
        from pyterrier_cascade.dcbert.training import Examples

        teacher = frame["teacher"].to_numpy(dtype=np.float32) if "teacher" in frame.columns else None
        if teacher is not None and not np.isfinite(teacher).all():
            row = frame.iloc[int(np.isfinite(teacher).argmin())]
            raise ValueError(
                f"{int((~np.isfinite(teacher)).sum())} of {len(frame)} teacher scores are no numbers, the first for "
                f"qid {row['qid']!r}, docno {row['docno']!r}; score all candidates, or leave out those without"
            )
        questions, asked = frames.distinct(frames.texts(frame, "query"))
        documents, texts = frames.distinct(frames.texts(frame, self.text_field))
        # Training reads the first passage of a long document.
        ours = self(passages="first")
        return Examples(
            ours.tokenized(asked, "question"),
            ours.tokenized(texts, "document"),
            questions,
            documents,
            frame["label"].to_numpy(dtype=np.int64),
            teacher,
        )

    def _states(self, side: str, pairs: TokenPairs):
        device = device_of(self.device)
        precision = "bf16" if has_bf16(device) else "fp32"
        return self.model.loaded.encoder(side, device, precision).states(pairs)

    def _measure(self, dev: pd.DataFrame, qrels: pd.DataFrame, frozen: bool) -> Callable[[str], dict[str, float]]:
        """Returns what measures the model as it is, on development questions that are encoded once if frozen."""
        blocks, queries, kept = frames.Blocks.of(dev), frames.texts(dev, "query"), {}

        def measure(precision: str) -> dict[str, float]:
            ours = self(precision=precision, verbose=False)
            if not frozen:
                scores = ours._joined(dev, blocks).scores
            else:
                if not kept:
                    kept["documents"], kept["codes"] = ours.encoded_texts(frames.texts(dev, self.text_field))
                    kept["questions"] = ours.questions([queries[block[0]] for block in blocks])
                found = join(ours, kept["questions"], kept["documents"], [kept["codes"][block] for block in blocks])
                scores = np.empty(len(dev))
                for block, one in zip(blocks, found, strict=True):
                    scores[block] = one.scores
            return {
                "dev_map": frames.mean_average_precision(dev, scores, qrels),
                "dev_p10": frames.success(dev, scores, qrels, 10),
            }

        return measure


@dataclasses.dataclass(frozen=True)
class Encoding:
    """What a cache is filled with: gives the token states of texts, here or on another machine.

    Attributes:
        ranker: Whose document encoder it is.
    """

    ranker: DCBERT

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns states, lengths and owners as :meth:`DocumentCache.build` wants them."""
        ranker = self.ranker
        pairs = ranker.tokenized(texts, "document")
        encoder = ranker.model.loaded.encoder("document", device_of(ranker.device), ranker.precision)
        return encoder.states(pairs).numpy(), pairs.lengths, pairs.owner
