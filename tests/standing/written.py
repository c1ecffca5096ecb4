"""The things that the package writes, each as a small one that is written, read and compared."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyterrier as pt

from pyterrier_cascade import BM25, Trace
from pyterrier_cascade.datasets.asnq.build import build
from pyterrier_cascade.datasets.asnq.squad_shaped import SquadShaped
from pyterrier_cascade.store.publish import Damaged
from tests.datasets.asnq.test_build import squad_file
from tests.drawn_traces import drawn_trace
from tests.few_docs import DOCS, topics
from tests.store import made_up

FEW, MORE = [5, 3], [4, 6, 2]
"""The sizes of the questions in the two parts of a trace."""


@dataclass(frozen=True)
class Thing:
    """A folder that the package writes.

    Attributes:
        write: Writes it to a path.
        read: Returns everything that users get from it, as values that ``==`` compares.
    """

    write: Callable[[Path], None]
    read: Callable[[Path], object]


def write_trace(path: Path) -> None:
    """A trace of two parts."""
    trace, more = drawn_trace(FEW), drawn_trace(MORE, seed=1)
    trace.save(path)
    trace._keep(more._parts[0])


def read_trace(path: Path) -> object:
    trace = Trace(path)
    numbers = [getattr(trace, name).tolist() for name in ("scores", "tokens", "inputs", "texts", "seen", "sizes")]
    return trace.meta, trace.qids.tolist(), trace.queries.tolist(), trace.docnos.tolist(), numbers


def write_index(path: Path) -> None:
    """An index of five documents, with the array of bm25+ beside the others."""
    BM25.from_docs(DOCS, method="bm25+").save(path)


def read_index(path: Path) -> object:
    index = BM25(path)
    return index(topics("cat", "dog sat", "ångström")).to_dict("list"), index.fingerprint, index.settings


def write_data_set(path: Path) -> None:
    """A built data set of two files, in five shards."""
    paths = [squad_file(path.parent / f"{name}.json", range(4), lambda n, name=name: f"{name}{n}") for name in "ab"]
    build(SquadShaped(paths, held_out=0.5), path, records_per_shard=2, verbose=False)


def read_data_set(path: Path) -> object:
    splits = [pt.get_dataset(f"as2:asnq-like/{split}", folder=str(path)) for split in ("train", "dev")]
    return [split.get_candidates().to_dict("list") for split in splits]


def write_cache(path: Path) -> None:
    """A store of seven documents in two shards."""
    made_up.build(path, made_up.corpus(7), dtype="int8")


def read_cache(path: Path) -> object:
    store = made_up.DocumentStore(path)
    if store.missing:
        # A store without a shard works, and says so.
        raise Damaged(f"{str(path)!r} has no shards {store.missing}; build it again, which makes them only")
    return made_up.right(store, made_up.corpus(7)), len(store), store.docnos(store.documents).tolist()


def write_graphs(path: Path) -> None:
    """Two graphs as the engine of OpenVINO keeps them; each adds other numbers."""
    _graphs(path)


def read_graphs(path: Path) -> object:
    constants = [op for graph in _graphs(path) for op in graph.get_ordered_ops() if op.get_type_name() == "Constant"]
    return [op.data.tolist() for op in constants]


def _graphs(path: Path) -> list:
    from openvino import Model, opset13

    from pyterrier_cascade.encoder.openvino_graphs import read_or_make

    def made():
        for number in range(2):
            given = opset13.parameter([4], np.float32)
            constant = opset13.constant(np.arange(number, number + 4, dtype=np.float32))
            yield Model([opset13.add(given, constant)], [given])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_or_make(path, lambda: list(made()))


THINGS = {
    "trace": Thing(write_trace, read_trace),
    "BM25 index": Thing(write_index, read_index),
    "data set": Thing(write_data_set, read_data_set),
    "cache": Thing(write_cache, read_cache),
    "graphs": Thing(write_graphs, read_graphs),
}
