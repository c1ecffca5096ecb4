"""The Sequential Reranker: independent models of growing depth, one after the other (CT-6 to CT-8)."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.crossencoder.ranker import CrossEncoder
from pyterrier_cascade.early_exit.groups import batches
from pyterrier_cascade.early_exit.policy import Plan, Policy, default_heads
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores
from pyterrier_cascade.encoder.pretrained import config_from
from pyterrier_cascade.identity import combined
from pyterrier_cascade.registry import refuse_others
from pyterrier_cascade.saving import Saved

FOLDER = "layers-{:02d}"
FOLDERS = FOLDER.replace("{:02d}", "*")


class SequentialReranker(Saved, EarlyExitRanker, pt.Estimator):
    """Reranks by several models, each of more layers than the one before and for fewer candidates.

    The baseline that the Cascade Transformer is measured against: every model reads the survivors from the start, which
    costs about twice as much (CT-33). It has the settings and stages of :class:`~pyterrier_cascade.Cascade`::

        bm25 >> sequential(alpha=0.4)
        bm25 >> sequential[4] % 0.6 >> sequential[12]

    Args:
        models: Cross-encoders in order of their layers.
        **policy: Who leaves early: the settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`, ``alpha``,
            ``counts``, ``margin``, ``margin_k``, ``plan``, ``batch_size``, ``rounding`` and ``exited``.
    """

    reuses_encodings = False

    def __init__(self, models: Sequence[CrossEncoder], **policy: Any):
        self.models, self.policy = tuple(models), Policy(**policy)
        if not self.models or len({model.text_field for model in self.models}) > 1:
            raise ValueError("give one or more models that read the same text_field")

    @classmethod
    def from_pretrained(
        cls, name_or_path: str, *, layers: Sequence[int] | None = None, models: dict | None = None, **settings
    ) -> "SequentialReranker":
        """Returns a sequential reranker: one that was saved, or one of an encoder's first layers, to be trained.

        Args:
            name_or_path: A folder that :meth:`save_pretrained` wrote or a Hub name that :meth:`push_to_hub` filled, or
                an encoder's folder or Hub name.
            layers: The layers that the models have; 4, 6, 8, 10 and 12 of 12 by default (CT-7).
            models: Settings of the models, such as ``{"precision": "bf16"}``.
            **settings: Any of the class's settings.
        """
        models = models or {}
        refuse_others(name_or_path, cls.__name__)
        saved = _folders(name_or_path)
        if not saved and layers is None and not Path(name_or_path).is_dir():
            saved = _downloaded(name_or_path)
        if saved:
            there = tuple(int(folder.name.rpartition("-")[2]) for folder in saved)
            if layers is not None and tuple(layers) != there:
                raise ValueError(
                    f"{name_or_path!r} holds models of {', '.join(map(str, there))} layers, so that layers="
                    f"{tuple(layers)} cannot be; leave it out, use plan=, or give an encoder"
                )
            return cls([CrossEncoder.from_pretrained(str(folder), **models) for folder in saved], **settings)
        if layers is None:
            layers = default_heads(config_from(name_or_path, models.get("trust_remote_code", False)).num_hidden_layers)
        return cls([CrossEncoder.from_pretrained(name_or_path, layers=n, **models) for n in layers], **settings)

    def write_weights(self, path: str | os.PathLike) -> None:
        """Writes each model into a folder of its own under ``path``."""
        for folder, model in zip(self._folders_under(path), self.models, strict=True):
            model.write_weights(folder)

    def point_to(self, path: str | os.PathLike) -> None:
        """Lets each model stand for its folder under ``path``."""
        for folder, model in zip(self._folders_under(path), self.models, strict=True):
            model.point_to(folder)

    def _folders_under(self, path: str | os.PathLike) -> list[Path]:
        return [Path(path) / FOLDER.format(layers) for layers in self.head_layers]

    def with_training(self, **changes):
        """Returns the reranker on the same weights with other settings of its models' trainings.

        Args:
            **changes: Fields of :class:`~pyterrier_cascade.Training`; a ``folder`` gets one for each model in it.
        """
        models = []
        for number, model in enumerate(self.models):
            mine = dict(changes)
            if mine.get("folder") is not None:
                mine["folder"] = str(Path(mine["folder"]) / f"model-{number}")
            models.append(model.with_training(**mine))
        return self(models=models)

    def apart(self):
        """Returns the reranker on a copy of its present weights."""
        return self(models=[model.apart() for model in self.models])

    def loaded_from(self, path: str):
        """Returns the reranker with its settings on the weights that :meth:`save_pretrained` wrote."""
        models = zip(self.models, _folders(path), strict=True)
        return self(models=[model.loaded_from(str(folder)) for model, folder in models])

    @property
    def history(self) -> pd.DataFrame:
        """The courses of the models' last trainings, one below the other, with a column ``layers``."""
        courses = [model.history.assign(layers=n) for n, model in zip(self.head_layers, self.models, strict=True)]
        return pd.concat(courses, ignore_index=True)

    @property
    def text_field(self) -> str:
        """The column with the document's text."""
        return self.models[0].text_field

    @property
    def head_layers(self) -> tuple[int, ...]:
        """The layers of the models."""
        layers = tuple(model.model.loaded.layers for model in self.models)
        if list(layers) != sorted(set(layers)):
            raise ValueError(f"models of {layers} layers: give them in ascending order, each once")
        return layers

    @property
    def full_layers(self) -> int:
        """The layers of the last model's full encoder."""
        return self.models[-1].model.loaded.full_layers

    @property
    def layer_size(self) -> int:
        """The multiply-adds of one of these layers for a token."""
        return self.models[-1].model.loaded.layer_size

    def head_costs(self, layers: Sequence[int]) -> list[float]:
        """Returns the layers of some of the models, those of another size by their multiply-adds."""
        sizes = dict(zip(self.head_layers, (model.model.loaded.layer_size for model in self.models), strict=True))
        return [layer * sizes[layer] / self.layer_size for layer in layers]

    def weight_holders(self) -> tuple[CrossEncoder, ...]:
        """Returns the models."""
        return self.models

    @property
    def weights(self) -> tuple:
        """The names of the models' weights."""
        return tuple(model.model for model in self.models)

    @property
    def relevant_from(self) -> int:
        """The least label that counts as relevant in training and development data."""
        return self.models[-1].relevant_from

    @property
    def computed_precision(self) -> str:
        """The precision that scores are computed in on this machine; several where the models have different ones."""
        return ", ".join(dict.fromkeys(model.computed_precision for model in self.models))

    def fingerprint(self) -> str:
        """Returns a hash of everything that scores depend on: all models, and their settings."""
        return combined([model.fingerprint() for model in self.models])

    def head_scores(
        self,
        frame: pd.DataFrame,
        blocks: frames.Blocks,
        plan: Plan,
        prune: bool = True,
        handover: None = None,
    ) -> HeadScores:
        """Returns the scores that each model gives to the candidates that it reads."""
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        groups = batches(blocks.codes[rows], plan.batch_size)
        models, sizes = dict(zip(self.head_layers, self.models, strict=True)), np.empty((2, len(rows)))

        def scores_of(number: int, alive: np.ndarray) -> np.ndarray:
            found, *n_inputs_and_tokens = models[plan.layers[number]].relevance(frame.iloc[rows[alive]])
            if number == 0:
                sizes[:, alive] = n_inputs_and_tokens
            return found

        scores = scores_in_turn(plan, groups, scores_of, prune)
        n_inputs, n_tokens = sizes
        return HeadScores(rows, scores, n_tokens, n_inputs)

    def fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va=None, qrels_va=None):
        """Trains each model by itself on the same candidates (CT-6), with the arguments of ``CrossEncoder.fit``."""
        with self._together() as models:
            for model in models:
                model.fit(topics_or_res_tr, qrels_tr, topics_or_res_va, qrels_va)
        return self

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None):
        """Trains each model by itself on labelled lists, as ``CrossEncoder.fit_candidates`` does."""
        with self._together() as models:
            for model in models:
                model.fit_candidates(train, dev)
        return self

    @contextlib.contextmanager
    def _together(self) -> Iterator[list[CrossEncoder]]:
        """Yields the models, each with a checkpoint folder of its own; an error inside restores all of them."""
        folders = [model.training.folder for model in self.models]
        shared = [folder is not None and folders.count(folder) > 1 for folder in folders]
        with contextlib.ExitStack() as stack:
            for model in self.models:
                stack.enter_context(model.model.training())
            yield [
                model.with_training(folder=str(Path(model.training.folder) / f"model-{number}")) if mine else model
                for number, (model, mine) in enumerate(zip(self.models, shared, strict=True))
            ]


def _folders(path: str | os.PathLike) -> list[Path]:
    """Returns the folders of the models that were saved under a path, by their layers."""
    return sorted(Path(path).glob(FOLDERS))


def _downloaded(name: str) -> list[Path]:
    """Returns the folders of a reranker on the Hub; none where the name means an encoder, or nothing."""
    from huggingface_hub import snapshot_download

    # An encoder is asked for next, whose error says more.
    with contextlib.suppress(OSError, ValueError):
        return _folders(snapshot_download(name, allow_patterns=f"{FOLDERS}/*"))
    return []
