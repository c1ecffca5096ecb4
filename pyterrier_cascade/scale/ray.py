"""Workers on a Ray cluster: a warm model in each, blocks and shards handed out one after the other."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyterrier as pt

from pyterrier_cascade.scale.pooled import Pooled


def _ray():
    try:
        import ray
    except ImportError:
        raise ImportError('RayPool needs ray: pip install "pyterrier_cascade[ray]"') from None
    return ray


class _Worker:
    """What an actor holds: the work that it was last given, with the model that this loaded."""

    def __init__(self):
        self.name, self.work = None, None

    def run(self, name: str, work: bytes, unit: Any) -> tuple[Any, list[tuple[str, type[Warning]]]]:
        if name != self.name:
            self.name, self.work = name, pickle.loads(work)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.work(unit)
        return result, [(str(one.message), one.category) for one in caught]


@dataclass
class _Unit:
    number: int
    value: Any
    times_lost: int = 0


class _Run:
    """One ``map`` over the actors of a pool."""

    def __init__(self, pool: RayPool, work: Callable[[Any], Any]):
        self.ray, self.pool, self.load = _ray(), pool, [0] * len(pool.actors)
        pickled = self.ray.cloudpickle.dumps(work)
        self.name, self.work = hashlib.sha256(pickled).hexdigest(), self.ray.put(pickled)
        self.under_way: dict[Any, tuple[int, _Unit]] = {}
        self.waiting: deque[_Unit] = deque()
        self.done: dict[int, Any] = {}

    def results(self, values: Iterable[Any]) -> Iterator[Any]:
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
        room = self.pool.in_flight
        while min(self.load) < room:
            unit = self.waiting.popleft() if self.waiting else None
            # Results that wait for a slow one before them count too, or they would fill the memory.
            if unit is None and len(self.under_way) + len(self.done) < room * len(self.load):
                unit = next(units, None)
            if unit is None:
                return
            place = self.load.index(min(self.load))
            self.load[place] += 1
            ref = self.pool.actors[place].run.remote(self.name, self.work, unit.value)
            self.under_way[ref] = place, unit

    def _collect(self, ref: Any) -> None:
        place, unit = self.under_way[ref]
        try:
            self.done[unit.number] = self._got(ref)
            self.load[place] -= 1
            del self.under_way[ref]
        except self.ray.exceptions.RayError as error:
            # What was under way there comes first; what waited behind it is not to blame.
            lost = [self.under_way.pop(one)[1] for one in [*self.under_way] if self.under_way[one][0] == place]
            if lost[0].times_lost == self.pool.retries:
                raise RuntimeError(
                    f"block {lost[0].number} lost its worker {self.pool.retries + 1} times, perhaps for want of "
                    f"memory: take smaller blocks or fewer workers; Ray says: {str(error).splitlines()[0]}"
                ) from error
            lost[0].times_lost += 1
            self.waiting.extend(lost)
            self.load[place] = 0
            self.pool.replace(place)

    def _got(self, ref: Any) -> Any:
        try:
            result, warned = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        for message, category in warned:
            warnings.warn(message, category, stacklevel=5)
        return result


class RayPool:
    """Ray actors that work on blocks of queries, shards of a cache and parts of a trace::

        with RayPool(8) as pool:
            pipeline = bm25 >> pool(cascade(alpha=0.4))
            cache = dcbert.encode(corpus, "corpus.dc", pool=pool)
            trace = cascade.trace(candidates, "run.trace", pool=pool)

    An actor keeps the model that it has loaded from one call to the next. One that dies is replaced, and what it was
    doing is done again; results come in order, as if there had been no pool. Folders that workers write must be ones
    that all machines see.

    Args:
        n_workers: How many actors.
        address: Of a running cluster, for example ``"auto"`` or ``"ray://host:10001"``. Otherwise the cluster that this
            process is connected to, or a new one on this machine.
        cpus: The cores of each actor.
        gpus: The GPUs of each, or a share of one.
        in_flight: How many units wait at an actor or are under way there. So much is read ahead, and no more.
        retries: How often a unit may lose its actor before it is given up.
        verbose: Whether to show progress.
    """

    def __init__(
        self,
        n_workers: int,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        in_flight: int = 2,
        retries: int = 2,
        verbose: bool = False,
    ):
        for name, value, least in (("n_workers", n_workers, 1), ("in_flight", in_flight, 1), ("retries", retries, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of {least} or more, not {value!r}")
        self.n_workers, self.address, self.cpus, self.gpus = n_workers, address, cpus, gpus
        self.in_flight, self.retries, self.verbose = in_flight, retries, verbose
        self._actors: list | None = None

    @property
    def actors(self) -> list:
        """The actors, made when they are first needed."""
        if self._actors is None:
            ray = _ray()
            if not ray.is_initialized():
                ray.init(address=self.address, log_to_driver=False)
            self._check_room(ray)
            self._actors = [self._new() for _ in range(self.n_workers)]
        return self._actors

    def _check_room(self, ray) -> None:
        there, free = ray.cluster_resources(), ray.available_resources()
        for name, each in (("CPU", self.cpus), ("GPU", self.gpus)):
            needed = self.n_workers * each
            if needed > there.get(name, 0):
                raise ValueError(
                    f"{self.n_workers} workers of {each} {name} need more than the {there.get(name, 0):g} of the "
                    "cluster; take fewer, or give each less"
                )
            # Ray lets them wait without a word.
            if needed > free.get(name, 0):
                warnings.warn(
                    f"{self.n_workers} workers of {each} {name} wait for room: {free.get(name, 0):g} of the cluster's "
                    f"{there[name]:g} are free",
                    stacklevel=5,
                )

    def _new(self):
        return _ray().remote(_Worker).options(num_cpus=self.cpus, num_gpus=self.gpus).remote()

    def map(self, work: Callable[[Any], Any], units: Iterable[Any]) -> Iterator[Any]:
        """Yields what ``work`` returns for each unit, in the order of the units, like the built-in ``map``.

        Args:
            work: What is done; it pickles, and gives the same when it is run twice.
            units: What it is done to; read as far ahead as there is room.
        """
        total = len(units) if hasattr(units, "__len__") else None
        with pt.tqdm(total=total, desc="blocks", unit="block", disable=not self.verbose) as bar:
            for result in _Run(self, work).results(units):
                bar.update()
                yield result

    def replace(self, place: int) -> None:
        """Puts a new actor in the place of one that is dead or out of reach."""
        _ray().kill(self.actors[place])
        self.actors[place] = self._new()

    def __call__(self, transformer: pt.Transformer, **settings) -> Pooled:
        """Returns a transformer that runs on the pool.

        Args:
            transformer: The reranking part of a pipeline.
            **settings: Those of :class:`~pyterrier_cascade.scale.pooled.Pooled`.
        """
        return Pooled(transformer, self, **settings)

    def close(self) -> None:
        """Ends the actors; the cluster stays. Used again, the pool makes new ones."""
        for actor in self._actors or []:
            _ray().kill(actor)
        self._actors = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        """Returns what can be typed back in."""
        more = {"address": None, "cpus": 1, "gpus": 0, "in_flight": 2, "retries": 2, "verbose": False}
        given = [f"{name}={getattr(self, name)!r}" for name, value in more.items() if getattr(self, name) != value]
        return f"RayPool({', '.join([str(self.n_workers), *given])})"

    def __getstate__(self):
        """It pickles without its actors."""
        return self.__dict__ | {"_actors": None}
