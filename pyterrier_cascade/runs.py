"""The same training under several seeds, and whether two models differ by more than chance (HR-30, HR-32)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR

from pyterrier_cascade import frames
from pyterrier_cascade.measures.names import parse_measures

MEASURES = (AP, RR)


@dataclass(frozen=True)
class Runs:
    """The measures of a model on each test question, for each seed.

    Attributes:
        values: A row for each seed and question, with index ``seed`` and ``qid``, and a column for each measure.
        histories: The course of the training under each seed, as the ranker's ``history`` has it.
    """

    values: pd.DataFrame
    histories: dict[int, pd.DataFrame] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ranker: pt.Transformer | Callable[[int], pt.Estimator],
        train: pd.DataFrame,
        dev: pd.DataFrame | None,
        test: pd.DataFrame,
        measures: Sequence = MEASURES,
        seeds: Iterable[int] = range(5),
        folder: str | None = None,
    ) -> "Runs":
        """Trains a ranker once for each seed and measures it each time; the given ranker stays as it is.

        Takes any ranker with weights, such as a cross-encoder, a cascade, a sequential reranker, DC-BERT or a
        hierarchical ranker. Each run trains weights of its own. What a seed decides is up to the ranker's training: the
        order of the data, dropout, and for a hierarchical ranker also its fresh weights.

        A recipe trains more than one step, so it is given as a function that makes it for a seed::

            Runs.of(lambda seed: Tanda(cascade.with_training(seed=seed), asnq, folder=f"runs/{seed}"), train, dev, test)

        Args:
            ranker: A ranker that was not trained yet, with the settings of its training; or a function that returns,
                for a seed, an object with ``fit_candidates`` to be trained.
            train: Labelled candidates, as ``dataset.get_candidates()`` gives them.
            dev: The same of the development questions, or None.
            test: The same of the test questions; questions without a positive are not measured (X-1).
            measures: Measures of ir-measures, or their names.
            seeds: The seeds of the runs.
            folder: Where checkpoints are kept, in a folder for each seed, so that a call that was killed goes on; the
                folder in the ranker's training unless given. A function decides its folders itself.
        """
        seeds, values, histories = list(seeds), {}, {}
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds={seeds}; give at least one, and none twice")
        frames.binary(test, "test")
        candidates = test.drop(columns="label")
        measures = parse_measures(measures)
        make = _maker(ranker, folder)
        for seed in seeds:
            one = make(seed)
            # Test candidates without the right columns are an error before hours of training.
            one.transform(candidates.iloc[:0])
            values[seed] = measured(one.fit_candidates(train, dev).transform(candidates), test, measures)
            histories[seed] = one.history
        return cls(pd.concat(values, names=["seed"]), histories)

    @property
    def means(self) -> pd.DataFrame:
        """The mean of each measure over the questions, a row for each seed."""
        return self.values.groupby(level="seed").mean()

    @property
    def summary(self) -> pd.DataFrame:
        """The mean and the standard deviation over the seeds, a row for each measure."""
        return pd.DataFrame({"mean": self.means.mean(), "deviation": self.means.std()})

    def t_test(self, other: "Runs") -> pd.DataFrame:
        """Returns paired t-tests of this model against another, a row for each measure (HR-32).

        The paper does not say whether it pairs questions or runs. ``p_questions`` pairs the questions, each with its
        mean over the seeds; ``p_runs`` pairs the runs of the same seed, each with its mean over the questions. A ``p``
        is NaN where all differences are the same.

        Args:
            other: The runs of the other model, with the same seeds and questions.
        """
        for name in ("seed", "qid"):
            ours, theirs = (set(one.values.index.get_level_values(name)) for one in (self, other))
            if ours != theirs:
                differing = ", ".join(map(str, sorted(ours ^ theirs, key=str)[:5]))
                raise ValueError(f"a paired test needs the same {name}s in both, but only one has {differing}")
        rows = {}
        for measure in self.values.columns:
            ours, theirs = (one.values[measure].unstack("seed") for one in (self, other))
            differences = ours - theirs
            rows[measure] = {
                "mean": ours.to_numpy().mean(),
                "other": theirs.to_numpy().mean(),
                "p_questions": _p_value(differences.mean(axis=1)),
                "p_runs": _p_value(differences.mean()),
            }
        return pd.DataFrame(rows).T


def _maker(ranker: pt.Transformer | Callable[[int], pt.Estimator], folder: str | None) -> Callable[[int], pt.Estimator]:
    """Returns a function that returns what a seed trains: a ranker on weights of its own, or the user's object."""
    if not isinstance(ranker, pt.Transformer) and callable(ranker):
        return ranker
    if not all(hasattr(ranker, name) for name in ("fit_candidates", "with_training", "weight_holders")):
        raise ValueError(
            f"{ranker!r} cannot be trained once for each seed; give a CrossEncoder, a Cascade or another ranker with "
            "weights, or a function that returns a recipe for a seed"
        )
    if any(one.model.loaded.trained_on for one in ranker.weight_holders()):
        raise ValueError(
            f"every seed would go on from the same weights, because {ranker!r} is trained; give a fresh one, or, if "
            "you want that, a function: lambda seed: ranker.apart().with_training(seed=seed)"
        )
    folder = folder or getattr(getattr(ranker, "training", None), "folder", None)

    def make(seed: int) -> pt.Estimator:
        return ranker.apart().with_training(seed=seed, folder=folder and str(Path(folder) / f"seed-{seed}"))

    return make


def _p_value(differences: pd.Series) -> float:
    from scipy.stats import ttest_1samp

    if len(differences) < 2 or np.ptp(differences) < 1e-12:
        return float("nan")
    return float(ttest_1samp(differences, 0).pvalue)


def measured(results: pd.DataFrame, judged: pd.DataFrame, measures: Sequence = MEASURES) -> pd.DataFrame:
    """Returns the measures of each question that has a positive, with index ``qid`` and a column for each measure.

    Args:
        results: Ranked candidates.
        judged: Candidates with their ``label``.
        measures: Measures of ir-measures.
    """
    found = ir_measures.iter_calc(measures, frames.judgements(judged), frames.scored(results))
    table = pd.DataFrame([(one.query_id, str(one.measure), one.value) for one in found], columns=["qid", "of", "value"])
    return table.pivot(index="qid", columns="of", values="value")[list(map(str, measures))].rename_axis(columns=None)
