"""Workers on a Ray cluster: each worker keeps its model loaded, and takes one block or shard after the other."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import pyterrier as pt

from pyterrier_cascade.checks import is_count, warn_user
from pyterrier_cascade.optional import require
from pyterrier_cascade.scale.pooled import Pooled


def _ray():
    return require("ray", "ray", purpose="RayPool")


_inside_worker = False
"""Whether this process is a worker of a pool."""


class _Worker:
    """A Ray actor. It keeps the work that it was last given, together with the model that this work loaded."""

    def __init__(self):
        global _inside_worker
        self.name, self.work = None, None
        _inside_worker = True

    def run(self, name: str, work: bytes, unit: Any) -> tuple[Any, list[tuple[str, type[Warning]]]]:
        """Returns the result of the pickled work on a unit, and the warnings that it gave."""
        try:
            if name != self.name:
                self.name, self.work = name, pickle.loads(work)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = self.work(unit)
        except Exception as error:
            raise _portable(error) from error
        return result, [(str(one.message), one.category) for one in caught]


def _portable(error: Exception) -> Exception:
    """Returns an error that another process can read: the error itself, or one with its text where it has no pickle.

    Ray would call the worker lost, and the work would be done again.
    """
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__} on a worker: {error}")


@dataclass
class _Unit:
    """A unit of work: its place in the order, the block or shard, and the number of actors that died on it."""

    number: int
    value: Any
    times_lost: int = 0


class _Map:
    """One ``map`` over the actors of a pool."""

    def __init__(self, pool: RayPool, work: Callable[[Any], Any]):
        self.ray, self.pool, self.load = _ray(), pool, [0] * len(pool.actors)
        pickled = self.ray.cloudpickle.dumps(work)
        self.name, self.work = hashlib.sha256(pickled).hexdigest(), self.ray.put(pickled)
        self.under_way: dict[Any, tuple[int, _Unit]] = {}
        self.waiting: deque[_Unit] = deque()
        self.done: dict[int, Any] = {}

    def results(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the results in the order of the values."""
        units, following = (_Unit(*one) for one in enumerate(values)), 0
        while True:
            self._hand_out(units)
            if not self.under_way:
                return
            self._collect(self.ray.wait(list(self.under_way), num_returns=1)[0][0])
            while following in self.done:
                yield self.done.pop(following)
                following += 1

    def _hand_out(self, units: Iterator[_Unit]) -> None:
        """Gives units to the actors, the least busy one first, until all actors have as many as they may have."""
        room = self.pool.in_flight
        while min(self.load) < room:
            unit = self.waiting.popleft() if self.waiting else None
            # Finished results that wait for an earlier, slower one count too. Otherwise they could fill the memory.
            if unit is None and len(self.under_way) + len(self.done) < room * len(self.load):
                unit = next(units, None)
            if unit is None:
                return
            place = self.load.index(min(self.load))
            self.load[place] += 1
            ref = self.pool.actors[place].run.remote(self.name, self.work, unit.value)
            self.under_way[ref] = place, unit

    def _collect(self, ref: Any) -> None:
        """Stores a finished result; if the actor died instead, replaces it and puts its units back into the queue."""
        place, unit = self.under_way[ref]
        try:
            self.done[unit.number] = self._got(ref)
            self.load[place] -= 1
            del self.under_way[ref]
        except self.ray.exceptions.RayError as error:
            # The first unit was running on the dead actor. The units behind it only waited and are not counted as lost.
            lost = [self.under_way.pop(one)[1] for one in [*self.under_way] if self.under_way[one][0] == place]
            if lost[0].times_lost == self.pool.retries:
                raise RuntimeError(
                    f"block {lost[0].number} lost its worker {self.pool.retries + 1} times, perhaps because memory was "
                    f"short: take smaller blocks or fewer workers; Ray says: {str(error).splitlines()[0]}"
                ) from error
            lost[0].times_lost += 1
            self.waiting.extend(lost)
            self.load[place] = 0
            self.pool.replace(place)

    def _got(self, ref: Any) -> Any:
        """Returns a result; raises the error of the work itself, and repeats the warnings of the worker here."""
        try:
            result, warned = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        for message, category in warned:
            warn_user(message, category)
        return result


@dataclass(eq=False, repr=False)
class RayPool:
    """A pool of Ray actors that work on blocks of queries, shards of a cache and parts of a trace::

        with RayPool(8) as pool:
            pipeline = bm25 >> pool(cascade(alpha=0.4))
            cache = dcbert.encode(corpus, "corpus.dc", pool=pool)
            trace = cascade.trace(candidates, "run.trace", pool=pool)

    An actor keeps its loaded model from one call to the next. If an actor dies, a new one replaces it and does its work
    again. Results come in the same order as without a pool. Folders that the workers write must lie where all machines
    see them.

    Args:
        n_workers: The number of actors.
        address: The address of a running cluster, for example ``"auto"`` or ``"ray://host:10001"``. Unless given, the
            pool uses the cluster that this process is connected to, or starts a new one on this machine.
        cpus: The cores of each actor.
        gpus: The GPUs of each actor; it may be a fraction of one GPU.
        in_flight: The number of units that an actor has at a time: one that it works on, and others that wait. The pool
            reads no more units ahead than the actors have room for.
        retries: A unit may lose its actor this many times; the next time is an error.
        verbose: Whether to show a progress bar.
    """

    n_workers: int
    _: KW_ONLY
    address: str | None = None
    cpus: float = 1
    gpus: float = 0
    in_flight: int = 2
    retries: int = 2
    verbose: bool = False

    def __post_init__(self):
        for name, least in (("n_workers", 1), ("in_flight", 1), ("retries", 0)):
            value = getattr(self, name)
            if not is_count(value, least):
                raise ValueError(f"{name} must be a whole number of {least} or more, not {value!r}")
        self._actors: list | None = None

    @property
    def actors(self) -> list:
        """The actors; the first use starts them."""
        if self._actors is None:
            ray = _ray()
            if not ray.is_initialized():
                ray.init(address=self.address, log_to_driver=False)
            self._check_room(ray)
            self._actors = [self._new() for _ in range(self.n_workers)]
        return self._actors

    def _check_room(self, ray) -> None:
        """Raises if the actors need more than the cluster has; warns if they have to wait for others."""
        there, free = ray.cluster_resources(), ray.available_resources()
        for name, each in (("CPU", self.cpus), ("GPU", self.gpus)):
            needed = self.n_workers * each
            if needed > there.get(name, 0):
                raise ValueError(
                    f"{self.n_workers} workers of {each} {name} need more than the {there.get(name, 0):g} of the "
                    "cluster; take fewer, or give each less"
                )
            # Ray itself lets the actors wait without a message.
            if needed > free.get(name, 0):
                warn_user(
                    f"{self.n_workers} workers of {each} {name} wait for room: {free.get(name, 0):g} of the cluster's "
                    f"{there[name]:g} are free"
                )

    def _new(self):
        return _ray().remote(_Worker).options(num_cpus=self.cpus, num_gpus=self.gpus).remote()

    def map(self, work: Callable[[Any], Any], units: Iterable[Any]) -> Iterator[Any]:
        """Yields the result of ``work`` for each unit, in the order of the units, like the built-in ``map``.

        Args:
            work: The function to run. It must be picklable, and must return the same result when it is run twice.
            units: The arguments of the function, one for each call. They are read only as far ahead as there is room.
        """
        if _inside_worker:
            raise ValueError(
                f"{self!r} runs inside a worker of another pool, and could wait for that pool's cores forever; use one "
                "pool, around the whole pipeline"
            )
        total = len(units) if hasattr(units, "__len__") else None
        with pt.tqdm(total=total, desc="blocks", unit="block", disable=not self.verbose) as bar:
            for result in _Map(self, work).results(units):
                bar.update()
                yield result

    def replace(self, place: int) -> None:
        """Replaces an actor that is dead or out of reach by a new one.

        Args:
            place: The number of the actor.
        """
        _ray().kill(self.actors[place])
        self.actors[place] = self._new()

    def __call__(self, transformer: pt.Transformer, **settings) -> Pooled:
        """Returns a transformer that runs on the pool.

        Args:
            transformer: The transformer to run, the reranking part of a pipeline.
            **settings: Further settings of :class:`~pyterrier_cascade.scale.pooled.Pooled`.
        """
        return Pooled(transformer, self, **settings)

    def close(self) -> None:
        """Ends the actors; the cluster keeps running. When the pool is used again, it starts new actors."""
        for actor in self._actors or []:
            _ray().kill(actor)
        self._actors = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        """Returns an expression that makes the pool again."""
        given = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        return f"RayPool({', '.join([str(self.n_workers), *(f'{name}={value!r}' for name, value in given[1:])])})"

    def __getstate__(self):
        """Leaves the actors out of a pickle."""
        return self.__dict__ | {"_actors": None}
