"""Spans of layers as OpenVINO graphs: converted, quantised to int8, and kept on disk."""

import contextlib
import hashlib
import inspect
import io
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder import layers, layout, linear
from pyterrier_cascade.encoder.families import Encoder, family_of
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Padded


def check_installed() -> None:
    """Raises where the extra is missing."""
    missing = [name for name in ("openvino", "nncf") if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"engine='openvino' needs {' and '.join(missing)}: pip install \"pyterrier_cascade[openvino]\""
        )


class Span(nn.Module):
    """The layers up to a head, from the head before, and the head itself, on a padded block.

    Args:
        encoder: The encoder taken apart, with plain linear maps.
        heads: All heads.
        number: Whose span this is; the first one begins with the embeddings.
    """

    def __init__(self, encoder: Encoder, heads: Sequence[Head], number: int):
        super().__init__()
        head, first = heads[number], heads[number - 1].layer if number else 0
        self.embeddings = encoder.embeddings if number == 0 else None
        self.layers, self.norm = nn.ModuleList(encoder.layers[first : head.layer]), encoder.norm
        self.head, self.pooling = head.module, head.pooling
        self.last = number == len(heads) - 1

    def forward(self, real: torch.Tensor, *given: torch.Tensor):
        """Returns scores ``(n,)`` and, unless this is the last span, states ``(n, longest, width)``.

        Args:
            real: Which places hold tokens, ``(n, longest)``.
            *given: The states before; for the first span what the embeddings look up, in the order of their tables.
        """
        block = Padded(real)
        hidden = given[0]
        if self.embeddings is not None:
            hidden = self.embeddings(**dict(zip(self.embeddings.tables, given, strict=True)))
        reads_first = self.last and self.pooling == "cls"
        for number, layer in enumerate(self.layers, start=1):
            hidden = layer(hidden, block, first_only=reads_first and number == len(self.layers))
        read = self.norm(hidden)
        scores = self.head(read if reads_first else block.pooled(read, self.pooling))
        return scores if self.last else (scores, hidden)


def converted(encoder: Encoder, heads: Sequence[Head]) -> list:
    """Returns each span as a graph for blocks of any shape."""
    import openvino

    real = torch.ones(3, 5, dtype=torch.bool)
    real[1, 3:] = False
    graphs = []
    for number, head in enumerate(heads):
        first = [torch.ones(3, 5, dtype=torch.long)] * len(encoder.embeddings.tables)
        given = [torch.zeros(3, 5, encoder.width)] if number else first
        try:
            # Tracing warns of every shape that Python sees; the tests compare other shapes than this one.
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                span = Span(encoder, heads, number).eval()
                graphs.append(openvino.convert_model(span, example_input=(real, *given)))
        except Exception as error:
            raise RuntimeError(
                f"OpenVINO {version('openvino')} could not convert the layers up to layer {head.layer} ({error}); "
                f"use engine='torch'"
            ) from error
    return graphs


def quantized(graphs: list, blocks: list[list[np.ndarray]], mixed: bool) -> list:
    """Returns the graphs in int8, each calibrated on the states that the exact ones before it leave.

    Args:
        graphs: The exact spans.
        blocks: What the first span is given, for each of some blocks.
        mixed: Whether the maps back from the feed-forward width, where most of the error arises, stay as they are.
    """
    import nncf
    import openvino

    found, core = [], openvino.Core()
    nncf.set_log_level(logging.ERROR)
    spared = nncf.IgnoredScope(patterns=[r".*\.down/.*"]) if mixed else None
    for number, graph in enumerate(graphs):
        kind = nncf.ModelType.TRANSFORMER
        with _bars_unseen():
            found.append(
                nncf.quantize(
                    graph, nncf.Dataset(blocks), model_type=kind, subset_size=len(blocks), ignored_scope=spared
                )
            )
        if number < len(graphs) - 1:
            exact = core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            blocks = [[block[0], exact(block)[1].copy()] for block in blocks]
    return found


@contextlib.contextmanager
def _bars_unseen():
    """Keeps NNCF's progress bars from standard output, which is for data, and from notebooks."""
    import rich

    console = rich.get_console()
    seen = vars(console)
    rich.reconfigure(file=io.StringIO(), force_jupyter=False)
    try:
        yield
    finally:
        console.__dict__ = seen


def joined(graph, low: bool):
    """Returns a span whose states come and go in bf16 if it computes in that, so that nothing is converted between.

    Args:
        graph: The span.
        low: Whether it computes in bf16.
    """
    import openvino
    from openvino.preprocess import PrePostProcessor

    states = [i for i, given in enumerate(graph.inputs) if given.element_type == openvino.Type.f32]
    if not low or (not states and len(graph.outputs) == 1):
        return graph
    around = PrePostProcessor(graph)
    for number in states:
        around.input(number).tensor().set_element_type(openvino.Type.bf16)
    if len(graph.outputs) > 1:
        around.output(1).tensor().set_element_type(openvino.Type.bf16)
    return around.build()


def shared(states: torch.Tensor):
    """Returns states as OpenVINO's tensor on the same memory; NumPy has no bf16."""
    import openvino

    if states.dtype == torch.float32:
        return states.numpy()
    return openvino.Tensor(states.view(torch.int16).numpy(), states.shape, openvino.Type.bf16)


def tensor(states, dtype: torch.dtype) -> torch.Tensor:
    """Returns OpenVINO's states as torch's tensor on the same memory."""
    return torch.from_numpy(states.data.view(np.int16 if dtype == torch.bfloat16 else np.float32)).view(dtype)


def kept(folder: Path | None, make: Callable[[], list]) -> list:
    """Returns the graphs of a folder; where it is not there, makes and keeps them.

    Args:
        folder: Where they are kept; nothing is if None.
        make: Makes them.
    """
    import openvino

    if folder is None:
        return make()
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # Renamed when complete: neither a process that is killed nor one beside it leaves half of it for whole.
            unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unfinished-"))
        except OSError as error:
            warnings.warn(
                f"compiled models cannot be kept in {folder.parent} ({error}), so that every process makes them anew",
                stacklevel=2,
            )
            return make()
        try:
            for number, graph in enumerate(make()):
                openvino.save_model(graph, unfinished / f"{number}.xml", compress_to_fp16=False)
            with contextlib.suppress(OSError):
                os.rename(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    core = openvino.Core()
    return [core.read_model(folder / f"{number}.xml") for number in range(len(list(folder.glob("*.xml"))))]


def fingerprint(encoder: nn.Module, heads: Sequence[Head], *more: np.ndarray) -> str:
    """Returns a digest of all that the graphs follow from: weights, heads, code, versions, and what else is given."""
    digest = hashlib.sha256()
    classes = {type(family_of(encoder.config)), Encoder}
    classes |= {type(module) for head in heads for module in head.module.modules()}
    ours = sorted(name for name in {one.__module__ for one in classes} if name.startswith("pyterrier_cascade."))
    for code in (layers, layout, linear, sys.modules[__name__], *(sys.modules[name] for name in ours)):
        digest.update(inspect.getsource(code).encode())
    versions = [version(package) for package in ("openvino", "nncf", "torch")]
    config = encoder.config.to_dict() | {"_name_or_path": None}
    digest.update(repr([versions, [(head.layer, head.pooling) for head in heads], config]).encode())
    for module in (encoder, *(head.module for head in heads)):
        for tensor in module.state_dict().values():
            digest.update(tensor.detach().cpu().contiguous().numpy())
    for array in more:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()[:16]
