"""Spans of layers run by OpenVINO, in fp32, bf16 or int8 (extra ``openvino``)."""

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
"""The least and the most inputs that int8 is calibrated on."""


class OpenVINOExecutor:
    """Runs the layers up to each head as graphs that OpenVINO compiled for this CPU.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: In order of their layers.
        precision: ``fp32``, ``bf16``, ``int8``, or ``mixed``: int8 but for the most sensitive third of the linear maps.
        cache: A folder in which converted spans are kept, or None to convert them anew in every process.
        calibration: What int8 is calibrated on; the first of them count, up to :data:`CALIBRATION`.
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
            graphs = openvino_graphs.kept(
                folder(precision, *more), lambda: openvino_graphs.quantized(exact(), blocks, mixed)
            )
        else:
            graphs = openvino_graphs.kept(folder("exact"), exact)
        # What int8 leaves out, sums and norms, is bf16 where the hardware has it.
        low = precision != "fp32" and has_bf16(self.device)
        n_threads = torch.get_num_threads()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if low else "f32",
            "NUM_STREAMS": n_threads,
            "INFERENCE_NUM_THREADS": n_threads,
        }
        # WaveStates go from span to span as OpenVINO has them inside.
        self.dtype = torch.bfloat16 if low else torch.float32
        core = openvino.Core()
        self._spans = [core.compile_model(openvino_graphs.joined(graph, low), "CPU", settings) for graph in graphs]
        self._idle, self._process = queue.LifoQueue(), os.getpid()

    def workers(self):
        """Opens the threads that chunks are dealt to."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "OpenVINO does not live on in a forked process; start processes by 'spawn' "
                "(multiprocessing.set_start_method), or use engine='torch'"
            )
        return workers()

    def run(self, spans: range, pairs: TokenPairs, rows: np.ndarray, states: WaveStates | None) -> torch.Tensor:
        """Returns the relevance that the head of each span gives to some inputs, ``(len(spans), len(rows))``.

        Args:
            spans: The numbers of the heads that are reached, one after the other.
            pairs: All inputs.
            rows: Those to run, in order of length.
            states: Where the span before left their states and this one leaves them; None where nothing goes on.
        """
        block = _block(pairs.lengths[rows])
        if spans.start == 0:
            given = _looked_up(self._embeddings, pairs, rows, block)
        else:
            given = [openvino_graphs.shared(states.read(rows, block))]
        try:
            requests = self._idle.get_nowait()
        except queue.Empty:
            requests = [span.create_infer_request() for span in self._spans]
        scores = []
        for span in spans:
            # What a request returns lies in its own memory and holds until it is asked again.
            request = requests[span]
            request.infer([block.real.numpy(), *given], share_inputs=True, share_outputs=True)
            scores.append(torch.from_numpy(request.get_output_tensor(0).data.copy()))
            given = [request.get_output_tensor(1)] if span < len(self.heads) - 1 else []
        if given and states is not None:
            states.write(rows, block, openvino_graphs.tensor(given[0], self.dtype))
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
            found.append([block.real.numpy(), *_looked_up(self._embeddings, pairs, rows, block)])
        return found


def _block(lengths: np.ndarray) -> Padded:
    """Returns the block of inputs of these lengths, its own length rounded up: a new shape takes time to compile."""
    longest = int(lengths.max())
    step = max(2, 2 ** (longest.bit_length() - 5))
    return Padded.of(lengths, torch.device("cpu"), longest=-(-longest // step) * step)


def _looked_up(embeddings: Embeddings, pairs: TokenPairs, rows: np.ndarray, block: Padded) -> list[np.ndarray]:
    """Returns what the embeddings look up, in the order of their tables, each ``(n, longest)``."""
    indices = embeddings.indices(pairs, rows)
    nothing = np.zeros_like(indices["input_ids"])
    tokens = (torch.from_numpy(indices.get(name, nothing).astype(np.int64)) for name in embeddings.tables)
    return [block.spread(values).numpy() for values in tokens]
