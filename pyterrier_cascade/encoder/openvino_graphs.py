"""Spans of layers as OpenVINO graphs: conversion, quantisation to int8, and files on disk."""

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
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade import optional
from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.encoder import layers, layout, linear
from pyterrier_cascade.encoder.families import Encoder, family_of
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Padded


def check_installed() -> None:
    """Raises an ImportError with the pip command if the extra ``openvino`` is not installed."""
    optional.check_installed("openvino", "openvino", "nncf", purpose="engine='openvino'")


class Span(nn.Module):
    """The layers between two heads and the second of the two heads, as one module that works on a padded block.

    Args:
        encoder: The encoder taken apart, with plain linear maps.
        heads: All heads, in order of their layers.
        number: The number of the head at which the span ends. The first span begins with the embeddings.
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
            real: A mask that is true for tokens and false for pads, ``(n, longest)``.
            *given: The states after the span before, ``(n, longest, width)``. For the first span these are the indices
                into each embedding table, in the order of the tables, each ``(n, longest)``.
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
    """Returns each span as an OpenVINO graph, which takes blocks of any shape.

    Args:
        encoder: The encoder taken apart, with plain linear maps.
        heads: The heads, in order of their layers.
    """
    import openvino

    real = torch.ones(3, 5, dtype=torch.bool)
    real[1, 3:] = False
    graphs = []
    for number, head in enumerate(heads):
        first = [torch.ones(3, 5, dtype=torch.long)] * len(encoder.embeddings.tables)
        given = [torch.zeros(3, 5, encoder.width)] if number else first
        try:
            # Tracing warns about every shape that Python code reads. The tests check that graphs take other shapes.
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
    """Returns the graphs in int8; each is calibrated on the states that the exact graphs before it compute.

    Args:
        graphs: The exact graphs, one for each span.
        blocks: The inputs of the first span, for each of several blocks.
        mixed: Whether the maps from the feed-forward width back to the width stay exact; most of the error of int8
            arises there.
    """
    import nncf
    import openvino

    found, core = [], openvino.Core()
    nncf.set_log_level(logging.ERROR)
    spared = nncf.IgnoredScope(patterns=[r".*\.down/.*"]) if mixed else None
    for number, graph in enumerate(graphs):
        kind = nncf.ModelType.TRANSFORMER
        with _hidden_progress_bars():
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
def _hidden_progress_bars():
    """Hides NNCF's progress bars, which would otherwise appear in notebooks and mix with data on standard output."""
    import rich

    console = rich.get_console()
    attributes = vars(console)
    rich.reconfigure(file=io.StringIO(), force_jupyter=False)
    try:
        yield
    finally:
        console.__dict__ = attributes


def with_low_states(graph):
    """Returns a span's graph with its input and output states in bf16, so that states pass between spans unconverted.

    Args:
        graph: The graph of a span that computes in bf16.
    """
    import openvino
    from openvino.preprocess import PrePostProcessor

    states = [i for i, given in enumerate(graph.inputs) if given.element_type == openvino.Type.f32]
    if not states and len(graph.outputs) == 1:
        return graph
    around = PrePostProcessor(graph)
    for number in states:
        around.input(number).tensor().set_element_type(openvino.Type.bf16)
    if len(graph.outputs) > 1:
        around.output(1).tensor().set_element_type(openvino.Type.bf16)
    return around.build()


def to_openvino(states: torch.Tensor):
    """Returns states in fp32 or bf16 as an array that OpenVINO takes, on the same memory; NumPy has no bf16."""
    import openvino

    if states.dtype == torch.float32:
        return states.numpy()
    return openvino.Tensor(states.view(torch.int16).numpy(), states.shape, openvino.Type.bf16)


def to_torch(states, dtype: torch.dtype) -> torch.Tensor:
    """Returns states of OpenVINO as a torch tensor on the same memory.

    Args:
        states: OpenVINO's tensor.
        dtype: Its type, fp32 or bf16.
    """
    return torch.from_numpy(states.data.view(np.int16 if dtype == torch.bfloat16 else np.float32)).view(dtype)


def read_or_make(folder: Path | None, make: Callable[[], list]) -> list:
    """Reads graphs from a folder; if the folder does not exist, makes the graphs and writes them to it.

    Args:
        folder: The folder, or None to make the graphs without writing them.
        make: The function that makes the graphs.
    """
    import openvino

    if folder is None:
        return make()
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # The folder gets its name when it is complete, so that no process ever reads half of it.
            unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unfinished-"))
        except OSError as error:
            warn_user(
                f"compiled models cannot be kept in {folder.parent} ({error}), so that every process makes them anew"
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
    """Returns a hash of everything that decides the graphs: weights, heads, configuration, code and versions.

    Args:
        encoder: The Hugging Face encoder.
        heads: The heads.
        *more: Further arrays to hash, such as the calibration's inputs.
    """
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
