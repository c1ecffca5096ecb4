"""An executor that runs spans of layers with OpenVINO, in fp32, bf16 or int8 (extra ``openvino``)."""

import os
import queue
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder import openvino_graphs
from pyterrier_cascade.encoder.chunks import chunks
from pyterrier_cascade.encoder.device import has_bf16
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.families.base import Embeddings
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Padded
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.wave_states import WaveStates
from pyterrier_cascade.encoder.workers import workers

CALIBRATED = ("int8", "mixed")
"""The precisions that need calibration."""

CALIBRATION = (32, 320)
"""The smallest and the largest number of inputs that int8 is calibrated on."""


class OpenVINOExecutor:
    """Runs the layers up to each head as graphs that OpenVINO compiles for this CPU.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers.
        precision: ``fp32``, ``bf16``, ``int8``, or ``mixed``, which is int8 except for the most sensitive third of the
            linear maps.
        cache: The folder for converted graphs, or None to convert them again in every process.
        calibration: The inputs that int8 is calibrated on; the first ones are used, at most as many as
            :data:`CALIBRATION` allows.
    """

    budget, padding = 1_024, 0.08
    device = torch.device("cpu")

    def __init__(
        self,
        encoder: nn.Module,
        heads: Sequence[Head],
        precision: str,
        cache: Path | None = None,
        calibration: TokenPairs | None = None,
    ):
        openvino_graphs.check_installed()
        import openvino

        self.heads = [head.to(self.device) for head in heads]
        apart = take_apart(encoder, Weights(self.device, torch.float32))
        self.width, self._embeddings = apart.width, apart.embeddings

        def folder(kind: str, *more: np.ndarray) -> Path | None:
            return cache and cache / f"{kind}-{openvino_graphs.fingerprint(encoder, self.heads, *more)}"

        def exact() -> list:
            return openvino_graphs.converted(apart, self.heads)

        if precision in CALIBRATED:
            blocks, mixed = self._calibration(calibration), precision == "mixed"
            more = (array for block in blocks for array in block)
            graphs = openvino_graphs.read_or_make(
                folder(precision, *more), lambda: openvino_graphs.quantized(exact(), blocks, mixed)
            )
        else:
            graphs = openvino_graphs.read_or_make(folder("exact"), exact)
        # Operations that int8 does not cover, such as norms and sums, are in bf16 where the hardware has it.
        low = precision != "fp32" and has_bf16(self.device)
        n_threads = torch.get_num_threads()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if low else "f32",
            "NUM_STREAMS": n_threads,
            "INFERENCE_NUM_THREADS": n_threads,
        }
        # States pass from span to span in OpenVINO's own precision, so that no conversion loses anything.
        self.dtype = torch.bfloat16 if low else torch.float32
        core = openvino.Core()
        spans = [openvino_graphs.with_low_states(graph) if low else graph for graph in graphs]
        self._spans = [core.compile_model(span, "CPU", settings) for span in spans]
        self._idle, self._process = queue.LifoQueue(), os.getpid()

    def workers(self):
        """Returns a context manager that opens the worker threads.

        In a process that was forked after OpenVINO started, this raises an error in place of a computation that hangs.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "OpenVINO does not work in a forked process; start processes by 'spawn' "
                "(multiprocessing.set_start_method), or use engine='torch'"
            )
        return workers()

    def run(self, spans: range, pairs: TokenPairs, rows: np.ndarray, states: WaveStates | None) -> torch.Tensor:
        """Returns the scores that the head of each span gives to some inputs, ``(len(spans), len(rows))``.

        Args:
            spans: The numbers of the spans to run, one after the other; each ends at the head of its number.
            pairs: All inputs.
            rows: The numbers of the inputs to run, in order of length.
            states: The states of the inputs: read if layers have run before, and written if later spans follow. None if
                all spans run in this call.
        """
        block = _block(pairs.lengths[rows])
        if spans.start == 0:
            given = _embedding_indices(self._embeddings, pairs, rows, block)
        else:
            given = [openvino_graphs.to_openvino(states.read(rows, block))]
        try:
            requests = self._idle.get_nowait()
        except queue.Empty:
            requests = [span.create_infer_request() for span in self._spans]
        scores = []
        for span in spans:
            # The output of a request lies in the memory of the request and is valid until its next call.
            request = requests[span]
            request.infer([block.real.numpy(), *given], share_inputs=True, share_outputs=True)
            scores.append(torch.from_numpy(request.get_output_tensor(0).data.copy()))
            given = [request.get_output_tensor(1)] if span < len(self.heads) - 1 else []
        if given and states is not None:
            states.write(rows, block, openvino_graphs.to_torch(given[0], self.dtype))
        self._idle.put(requests)
        return torch.stack(scores)

    def _calibration(self, pairs: TokenPairs) -> list[list[np.ndarray]]:
        lengths = pairs.lengths[: CALIBRATION[1]]
        if len(lengths) < CALIBRATION[0]:
            raise ValueError(
                f"int8 is calibrated on the candidates that are scored first, at least {CALIBRATION[0]}, but these "
                f"are {len(lengths)}; call calibrate(results) with some hundred candidates before"
            )
        found = []
        for rows in chunks(lengths, self.budget, padding=self.padding):
            block = _block(lengths[rows])
            found.append([block.real.numpy(), *_embedding_indices(self._embeddings, pairs, rows, block)])
        return found


def _block(lengths: np.ndarray) -> Padded:
    """Returns the block of inputs of some lengths; its own length is rounded up, because new shapes are compiled."""
    longest = int(lengths.max())
    step = max(2, 2 ** (longest.bit_length() - 5))
    return Padded.of(lengths, torch.device("cpu"), longest=-(-longest // step) * step)


def _embedding_indices(embeddings: Embeddings, pairs: TokenPairs, rows: np.ndarray, block: Padded) -> list[np.ndarray]:
    """Returns the indices into each embedding table, in the order of the tables, each ``(n, longest)``."""
    indices = embeddings.indices(pairs, rows)
    zeros = np.zeros_like(indices["input_ids"])
    tokens = (torch.from_numpy(indices.get(name, zeros).astype(np.int64)) for name in embeddings.tables)
    return [block.spread(values).numpy() for values in tokens]
