"""An executor that runs spans of layers with OpenVINO, in fp32, bf16 or int8 (extra ``openvino``)."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder import openvino_graphs
from pyterrier_cascade.encoder.chunks import chunks
from pyterrier_cascade.encoder.device import CALIBRATED, low_precision
from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Padded
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.workers import workers


def openvino_precision(precision: str) -> str:
    """Returns the precision that OpenVINO computes in on this machine, such as ``"int8 and bf16"``.

    Operations that int8 does not cover, such as norms and sums, are in bf16 where the hardware has it.
    """
    rest = "fp32" if precision == "fp32" else low_precision(OpenVINOExecutor.device)
    return f"{precision} and {rest}" if precision in CALIBRATED else rest


class OpenVINOExecutor(Executor):
    """Runs the layers up to each head as graphs that OpenVINO compiles for this CPU; torch looks the embeddings up.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers.
        precision: ``fp32``, ``bf16``, ``int8``, or ``mixed``, which is int8 except for the most sensitive third of the
            linear maps.
        cache: The folder for converted graphs, or None to convert them again in every process.
        calibration: The inputs that int8 is calibrated on.
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

        self.precision, self.heads = precision, [head.to(self.device) for head in heads]
        apart = take_apart(encoder, Weights(self.device, torch.float32))
        self.width, self.embeddings = apart.width, apart.embeddings

        def exact() -> list:
            return openvino_graphs.converted(apart, self.heads)

        def quantized() -> list:
            return openvino_graphs.quantized(exact(), self._blocks(calibration), mixed=precision == "mixed")

        kind, make, deciding = "exact", exact, []
        if precision in CALIBRATED:
            kind, make, deciding = precision, quantized, [calibration.lengths, *calibration.columns.values()]
        folder = cache and cache / f"{kind}-{openvino_graphs.fingerprint(encoder, self.heads, *deciding)}"
        graphs = openvino_graphs.read_or_make(folder, make)
        low = openvino_precision(precision).endswith("bf16")
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
        self._of_thread, self._process = threading.local(), os.getpid()

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

    def layout(self, lengths: np.ndarray) -> Padded:
        """Returns the block of inputs of some lengths; its length is rounded up, because new shapes are compiled."""
        longest = int(lengths.max())
        step = max(2, 2 ** (longest.bit_length() - 5))
        return Padded.of(lengths, longest=-(-longest // step) * step)

    def span(self, number: int, hidden: torch.Tensor, layout: Padded) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the scores ``(n,)`` of the head of a number, and the states after its span; the last has none."""
        request = self._requests()[number]
        request.infer([layout.real.numpy(), openvino_graphs.to_openvino(hidden)], share_inputs=True, share_outputs=True)
        # The outputs lie in the memory of the request and are valid until its next call.
        scores = torch.from_numpy(request.get_output_tensor(0).data.copy())
        if number == len(self.heads) - 1:
            return scores, None
        return scores, openvino_graphs.to_torch(request.get_output_tensor(1), self.dtype)

    def _requests(self) -> list:
        """Returns a request of each span that belongs to the present thread."""
        if not hasattr(self._of_thread, "requests"):
            self._of_thread.requests = [span.create_infer_request() for span in self._spans]
        return self._of_thread.requests

    def _blocks(self, pairs: TokenPairs) -> list[list[np.ndarray]]:
        """Returns the arguments of the first span for the inputs of the calibration, in several blocks."""
        blocks = []
        for rows in chunks(pairs.lengths, self.budget, padding=self.padding):
            block = self.layout(pairs.lengths[rows])
            blocks.append([block.real.numpy(), block.spread(self.embeddings(pairs, rows)).numpy()])
        return blocks
