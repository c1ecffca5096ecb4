"""Distilling heads without labels: one pass of the encoder reads all states, then each head learns the last scores."""

import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from torch import nn

from pyterrier_cascade import frames
from pyterrier_cascade.cascade.head_learning import Distillation, Features, agreement, learn_head, split
from pyterrier_cascade.cascade.loading import check_heads, check_last, place_heads
from pyterrier_cascade.cascade.model import CascadeModel, fresh_head
from pyterrier_cascade.cascade.placement import cheapest_layers
from pyterrier_cascade.early_exit.groups import slabs
from pyterrier_cascade.encoder.device import CALIBRATED, device_of, scoring_precision
from pyterrier_cascade.encoder.engine import read
from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.pretrained import fixed_seed
from pyterrier_cascade.encoder.workers import workers
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.identity import combined, deciding_fields, of_weights
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store.parts import is_sound, seal_part
from pyterrier_cascade.store.publish import publishing_folder

if TYPE_CHECKING:
    from pyterrier_cascade.cascade.ranker import Cascade

AUTO = "auto"
PART_BYTES = 200_000_000
"""The most bytes of states that are in memory at once, about."""


@dataclass(frozen=True)
class PooledStates:
    """The pooled states of inputs at some layers and the last head's scores, in part folders on disk.

    Attributes:
        parts: The folders, each with the states of some inputs.
        layers: The layers that were read.
    """

    parts: list[Path]
    layers: tuple[int, ...]

    @cached_property
    def scores(self) -> np.ndarray:
        """The last head's score of each input, ``(n,)``."""
        return np.concatenate([np.load(part / "scores.npy") for part in self.parts])

    @cached_property
    def questions(self) -> np.ndarray:
        """The question of each input as a number, ascending, ``(n,)``."""
        return np.concatenate([np.load(part / "questions.npy") for part in self.parts])

    def features(self, layer: int) -> Features:
        """Returns the function that reads the states of a layer, ``(n,)`` to ``(n, width)``."""
        arrays = [np.load(part / f"layer-{layer:02d}.npy", mmap_mode="r") for part in self.parts]
        starts = np.cumsum([0, *map(len, arrays)])

        def of(rows: np.ndarray) -> np.ndarray:
            found = np.empty((len(rows), arrays[0].shape[1]), np.float32)
            where = np.searchsorted(starts, rows, side="right") - 1
            for part in np.unique(where).tolist():
                mine = where == part
                found[mine] = arrays[part][rows[mine] - starts[part]]
            return found

        return of


def distilled(
    ranker: "Cascade",
    candidates: pd.DataFrame,
    layers: Sequence[int] | str | None,
    folder: str | None,
    settings: Distillation,
) -> None:
    """Teaches a ranker's heads the last head's scores; the arguments are those of :meth:`Cascade.distil`."""
    frames.validate(candidates, context=ranker, text_field=ranker.text_field)
    model, depth = ranker.model.loaded, ranker.model.loaded.layers
    if not model.module.config.converted:
        raise ValueError(
            f"distil() teaches heads the scores of a cross-encoder's classifier, and {ranker.model!r} has none; make "
            "the cascade by Cascade.from_cross_encoder(...), or train with labels: fit() with heads='distilled'"
        )
    if isinstance(layers, str) and layers != AUTO:
        raise ValueError(f'layers={layers!r}: give layers, "auto", or nothing for those of the present heads')
    if layers is not None and layers != AUTO:
        check_heads(layers, None, None)
        check_last(layers, model.encoder_config, ranker.model.source)
    blocks = frames.Blocks.of(candidates)
    if len(blocks) < 2:
        raise ValueError(
            f"distil() needs candidates of two queries or more, but these are of {len(blocks)}; some hundred do well"
        )
    wanted = tuple(range(1, depth + 1)) if layers == AUTO else tuple(layers or model.head_layers)
    if wanted == (depth,):
        return
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        states = read_states(ranker, candidates, blocks, wanted, Path(place))
        if np.ptp(states.scores) == 0:
            raise ValueError(
                f"the last head gives all {len(states.scores)} candidates the same score, {states.scores[0]}; there is "
                "nothing to learn from them"
            )
        held = split(len(blocks), settings)[states.questions]
        with ranker.model.training():
            heads, scores, report = learned_heads(model, states, held, settings, ranker.verbose)
            if layers == AUTO:
                scores = np.column_stack([*scores.values(), states.scores])
                wanted = cheapest_layers(scores[held], states.questions[held], wanted)
            _replace(ranker, wanted, heads)
            model.remember(frames.texts(candidates, "query"))
            report = [row for row in report if row["layer"] in wanted]
            record = TrainedOn(
                len(blocks),
                len(candidates),
                None,
                repr(settings),
                agreement=tuple(tuple(row.values()) for row in report),
            )
            ranker.model.mark_fitted(report, record)


def learned_heads(
    model: CascadeModel, states: PooledStates, held: np.ndarray, settings: Distillation, verbose: bool
) -> tuple[dict[int, nn.Module], dict[int, np.ndarray], list[dict]]:
    """Returns for each layer but the last a trained head and its scores, and the report of their agreement."""
    target, questions, layers = states.scores, states.questions, states.layers[:-1]
    with fixed_seed(), torch.inference_mode(False):
        heads = {layer: starting_head(model) for layer in layers}

    def learned(layer: int) -> np.ndarray:
        with torch.inference_mode(False):
            return learn_head(heads[layer], states.features(layer), target, questions, held, settings)

    # A head on each core: its products are too small to be shared between cores.
    with workers() as pool, pt.tqdm(total=len(layers), desc="heads", unit="head", disable=not verbose) as bar:
        scores = {}
        for layer, found in zip(layers, pool.map(learned, layers), strict=True):
            scores[layer] = found
            bar.update(1)
    report = [
        dict(zip(("layer", "correlation", "top1", "ndcg"), (layer, *found), strict=True))
        for layer in layers
        for found in [agreement(scores[layer][held], target[held], questions[held])]
    ]
    return heads, scores, report


def starting_head(model: CascadeModel) -> nn.Sequential:
    """Returns a fresh head with larger weights than that of a fine-tuning, so that it learns within few passes."""
    head = fresh_head(model.module.config, model.encoder_config.hidden_size).eval()
    for linear in head[::3]:
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return head


def _replace(ranker: "Cascade", layers: tuple[int, ...], heads: dict[int, nn.Module]) -> None:
    """Puts distilled heads in place of the ranker's, perhaps at other layers."""
    model = ranker.model.loaded
    if layers != model.head_layers:
        place_heads(model.module, layers, ranker.model.source)
        ranker.model.options |= {"layers": layers}
    device = next(model.module.parameters()).device
    for number, layer in enumerate(layers[:-1]):
        model.module.heads[number] = heads[layer].to(device)
    model.__dict__.pop("executors", None)


def read_states(
    ranker: "Cascade", candidates: pd.DataFrame, blocks: frames.Blocks, layers: tuple[int, ...], folder: Path
) -> PooledStates:
    """Returns the pooled states of candidates at some layers. Parts that are in the folder, whole, are not read again.

    Args:
        ranker: The cascade; the pass is computed by torch.
        candidates: A results frame with texts.
        blocks: Its blocks.
        layers: The layers to read, of which the last is the encoder's last.
        folder: The folder of the parts, which are replaced where they are of other candidates or another model.
    """
    model = ranker.model.loaded
    device, reading = next(model.module.parameters()).device, _reading(ranker, layers)
    executor, last = _reader(ranker, layers), model.heads[-1].to(device)
    rows = frames.ranking(candidates, blocks, np.zeros(len(candidates)))
    parts = []
    with pt.tqdm(total=len(rows), desc="states", unit="pair", disable=not ranker.verbose) as bar:
        row_bytes = 2 * model.encoder_config.hidden_size * len(layers) * np.dtype(np.float32).itemsize
        for number, part in enumerate(slabs(blocks.codes[rows], min(ROWS, PART_BYTES // row_bytes))):
            frame, questions = candidates.iloc[rows[part]], blocks.codes[rows[part]]
            words = f"{reading} {frames.digest([frame], ranker.text_field, questions.tolist())}"
            parts.append(folder / f"{number:05d}-{hashlib.sha256(words.encode()).hexdigest()[:16]}")
            if is_sound(parts[-1]):
                bar.update(len(frame))
                continue
            pairs = ranker._tokenize(*ranker._texts(frame))
            found = read(executor, pairs, ranker.token_budget, bar.update)
            if not np.isfinite(found).all():
                raise ValueError(f"states of {ranker.model!r} are NaN or infinite; the model's weights are broken")
            with publishing_folder(parts[-1], overwrite=True) as new, torch.inference_mode():
                width = found.shape[2] // 2
                read_last = found[:, -1, width:] if last.pooling == "cls" else found[:, -1, :width]
                scores = last.module(torch.from_numpy(np.ascontiguousarray(read_last)).to(device)).cpu().numpy()
                np.save(new / "scores.npy", scores)
                np.save(new / "questions.npy", questions[pairs.owner])
                for place, layer in enumerate(layers[:-1]):
                    np.save(new / f"layer-{layer:02d}.npy", found[:, place].astype(np.float16))
                seal_part(new, parts[-1].name)
    return PooledStates(parts, layers)


def _reading(ranker: "Cascade", layers: tuple[int, ...]) -> str:
    """Returns a hash of everything that states and last scores depend on; the other heads are no part of it."""
    module = ranker.model.loaded.module
    weights = module.state_dict().items()
    fixed = of_weights({name: tensor for name, tensor in weights if not name.startswith(("heads.", "seen_queries"))})
    fields, tokenizer = deciding_fields(module.encoder.config), ranker.model.loaded.tokenizer_identity
    return combined(fixed, fields, tokenizer, layers, _precision(ranker), ranker._limit())


def _precision(ranker: "Cascade") -> str:
    """Returns the precision that torch reads the states in."""
    name = "fp32" if ranker.precision in CALIBRATED else ranker.precision
    return scoring_precision(name, device_of(ranker.device))


def _reader(ranker: "Cascade", layers: tuple[int, ...]):
    """Returns an executor whose heads return the pooled states of layers."""
    model = ranker.model.loaded
    heads = [Head(layer, "mean_cls", nn.Identity()) for layer in layers]
    executors = Executors(model.module.base_model, heads)
    return executors.get("torch", _precision(ranker), ranker.device, None)
