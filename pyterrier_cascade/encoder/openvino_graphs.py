"""Spans of layers as OpenVINO graphs: conversion, quantisation to int8, and files on disk."""

import contextlib
import hashlib
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade import optional
from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.encoder import executor, layers, layout, linear
from pyterrier_cascade.encoder.executor import Span
from pyterrier_cascade.encoder.families import Encoder, family_of
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Padded
from pyterrier_cascade.identity import combined, deciding_fields, of_arrays, of_weights
from pyterrier_cascade.store import parts
from pyterrier_cascade.store.publish import publishing_folder


def check_installed() -> None:
    """Raises an ImportError with the pip command if the extra ``openvino`` is not installed."""
    optional.check_installed("openvino", "openvino", "nncf", purpose="engine='openvino'")


class _Traced(nn.Module):
    """A span as a function of tensors only, which OpenVINO can convert."""

    def __init__(self, span: Span, last: bool):
        super().__init__()
        self.span, self.last = span, last

    def forward(self, real: torch.Tensor, hidden: torch.Tensor):
        """Returns scores ``(n,)`` and, unless this is the last span, states ``(n, longest, width)``."""
        scores, hidden = self.span(hidden, Padded(real))
        return scores if self.last else (scores, hidden)


def converted(encoder: Encoder, heads: Sequence[Head]) -> list:
    """Returns each span as an OpenVINO graph, which takes blocks of any shape.

    The inputs of a graph are a mask that is true for tokens and false for pads, ``(n, longest)``, and the states before
    the span, ``(n, longest, width)``.

    Args:
        encoder: The encoder taken apart, with plain linear maps.
        heads: The heads, in order of their layers.
    """
    import openvino

    real = torch.ones(3, 5, dtype=torch.bool)
    real[1, 3:] = False
    graphs = []
    for number, head in enumerate(heads):
        try:
            # Tracing warns about every shape that Python code reads. The tests check that graphs take other shapes.
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = _Traced(Span(encoder, heads, number), last=number == len(heads) - 1).eval()
                graphs.append(openvino.convert_model(traced, example_input=(real, torch.zeros(3, 5, encoder.width))))
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
        blocks: The mask and the states that the first span takes, for each of several blocks.
        mixed: Whether the maps from the feed-forward width back to the width stay exact; most of the error of int8
            arises there.
    """
    import nncf
    import openvino

    found, core = [], openvino.Core()
    nncf.set_log_level(logging.ERROR)
    spared = nncf.IgnoredScope(patterns=[r".*\.down/.*"]) if mixed else None
    kind = nncf.ModelType.TRANSFORMER
    for number, graph in enumerate(graphs):
        data = nncf.Dataset(blocks)
        with _hidden_progress_bars():
            found.append(nncf.quantize(graph, data, model_type=kind, subset_size=len(blocks), ignored_scope=spared))
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

    around = PrePostProcessor(graph)
    around.input(1).tensor().set_element_type(openvino.Type.bf16)
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
    """Reads graphs from a folder; if they are not there, or not what was written, makes them and writes them to it.

    Args:
        folder: The folder, or None to make the graphs without writing them.
        make: The function that makes the graphs.
    """
    import openvino

    if folder is None:
        return make()
    if not parts.is_sound(folder):
        graphs = make()
        try:
            damaged = folder.exists()
            with publishing_folder(folder, overwrite=damaged, keep=not damaged) as unfinished:
                for number, graph in enumerate(graphs):
                    openvino.save_model(graph, unfinished / f"{number}.xml", compress_to_fp16=False)
                parts.seal_part(unfinished, folder.name)
        except OSError as error:
            warn_user(
                f"compiled models cannot be kept in {folder.parent} ({error}), so that every process makes them anew"
            )
            return graphs
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
    for code in (executor, layers, layout, linear, sys.modules[__name__], *(sys.modules[name] for name in ours)):
        digest.update(inspect.getsource(code).encode())
    versions = [version(package) for package in ("openvino", "nncf", "torch")]
    places = [(head.layer, head.pooling) for head in heads]
    weights = [of_weights(module.state_dict()) for module in (encoder, *(head.module for head in heads))]
    fields = deciding_fields(encoder.config)
    return combined(digest.hexdigest(), versions, places, fields, weights, of_arrays(more))[:16]
