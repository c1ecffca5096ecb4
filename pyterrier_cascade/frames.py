"""Results frames in and out: the only module that deals with the quirks of pandas.

A *block* is one query and its candidates. Rows arrive in any order, with a non-unique index and interleaved qids, so
rows are addressed by position throughout.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Number

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import shown, warn_user
from pyterrier_cascade.forks import cached_property

COST, FULL_COST = "q_cost", "q_cost_full"
"""Query columns: the layers that all rankers so far ran over a query's candidates, and those of the full model.

The full model is that of the last ranker, over all candidates that entered the first one. A layer of another size
counts by its multiply-adds. The names start with ``q``, so PyTerrier keeps the columns as long as the query has a row
left. The cost of candidates that a stage drops is therefore not lost.
"""

TOKEN_COST, FULL_TOKEN_COST = "q_token_cost", "q_token_cost_full"
"""The same columns with each candidate weighted by its tokens."""

FULL_LAYERS, LAYER_SIZE = "q_full_layers", "q_layer_size"
"""Query columns that say against what: the layers of the full model, and the multiply-adds of one of them for a token.
"""

COSTS = (COST, FULL_COST, TOKEN_COST, FULL_TOKEN_COST)
COST_COLUMNS = {**dict.fromkeys(COSTS, np.float64), FULL_LAYERS: np.int64, LAYER_SIZE: np.int64}
"""The columns that a ranker with countable layers adds, and their types."""

EXIT_COLUMNS = {"exit_layer": np.int64, **COST_COLUMNS}
"""The columns that a ranker with heads adds: the layer whose head gave the score, and the costs."""

TEXT_HINT = (
    "The retriever returned no {field!r}; put a text loader before this transformer: "
    "`retriever >> pt.text.get_text(dataset_or_index) >> ...`, or use pyterrier_cascade.BM25, which returns it."
)


def distinct(texts: Iterable[str]) -> tuple[np.ndarray, list[str]]:
    """Returns the number of each text, ``(n_texts,)``, and the different texts, numbered as they first appear.

    Not ``pd.factorize``: that of pandas 2 confuses texts that hold half a surrogate pair.
    """
    numbers: dict[str, int] = {}
    codes = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), dtype=np.int64)
    return codes, [*numbers]


@dataclass(frozen=True)
class Blocks:
    """The blocks of a frame: ``codes[i]`` is the block of row i; blocks are numbered as their qids first appear."""

    codes: np.ndarray
    qids: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Blocks":
        """Returns the blocks of a frame with a ``qid`` column; a missing qid and two queries under one are errors."""
        codes, qids = pd.factorize(frame["qid"])
        if len(codes) and codes.min() < 0:
            raise ValueError(
                f"qid is missing in row {int(np.argmin(codes))} of {len(codes)}; every row needs a query id"
            )
        blocks = cls(codes, np.asarray(qids))
        if "query" in frame.columns and len(frame):
            blocks._check_queries(filled(frame, "query")[0])
        return blocks

    def _check_queries(self, queries: np.ndarray) -> None:
        """Raises where a block has two queries: some rankers would score all its candidates by one of them."""
        rows, first = np.arange(len(queries)), np.empty(len(self), dtype=np.int64)
        first[self.codes[::-1]] = rows[::-1]
        other = queries != queries[first[self.codes]]
        if other.any():
            row = int(other.argmax())
            before = first[self.codes[row]]
            n = len(np.unique(self.codes[other]))
            raise ValueError(
                f"{n} of {len(self)} qids have more than one query, the first is {shown(self.qids[self.codes[row]])}: "
                f"{shown(queries[before])} in row {before}, {shown(queries[row])} in row {row}; give each query a qid "
                "of its own"
            )

    def __len__(self) -> int:
        """Returns the number of blocks."""
        return len(self.qids)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of candidates of each block, shape ``(n_blocks,)``."""
        return np.bincount(self.codes, minlength=len(self.qids))

    def __iter__(self):
        """Yields the row positions of each block, in the frame's order."""
        yield from np.split(np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes)[:-1]) if len(self) else ()

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of a value of the rows over each row's block, shape ``(n_rows,)``."""
        return np.bincount(self.codes, weights=values, minlength=len(self.qids))[self.codes]


def validate(frame: pd.DataFrame, *, context: pt.Transformer, text_field: str | None = "text") -> None:
    """Checks that a frame holds queries and candidates (and their text, unless ``text_field`` is None)."""
    columns = ["query"] if text_field is None else ["query", text_field]
    try:
        pt.validate.result_frame(frame, extra_columns=columns, context=context)
    except pt.validate.InputValidationError as error:
        if text_field is not None and "docno" in frame.columns and text_field not in frame.columns:
            raise pt.validate.InputValidationError(TEXT_HINT.format(field=text_field), error.modes) from None
        raise
    if not frame.columns.is_unique:
        twice = sorted(set(frame.columns[frame.columns.duplicated()].astype(str)))
        raise ValueError(f"the frame has more than one column named {', '.join(twice)}; drop or rename them first")


def texts(frame: pd.DataFrame, column: str) -> list[str]:
    """Returns a text column as strings; missing values become empty texts, with one warning that counts them."""
    values, n_missing = filled(frame, column)
    if n_missing:
        warn_user(f"{n_missing} of {len(values)} rows have no {column!r}; they are scored as an empty text")
    strings = values.tolist()
    for row, value in enumerate(strings):
        if not isinstance(value, str):
            raise ValueError(
                f"{column!r} must hold strings, but row {row} holds {shown(value)} ({type(value).__name__})"
            )
    return strings


def filled(frame: pd.DataFrame, column: str) -> tuple[np.ndarray, int]:
    """Returns a text column of any type as objects, ``(n_rows,)``, with ``""`` for missing values, and their number."""
    values = frame[column].to_numpy(dtype=object)
    missing = pd.isna(values)
    n_missing = int(missing.sum())
    return np.where(missing, "", values) if n_missing else values, n_missing


def numbers(frame: pd.DataFrame, column: str, missing: float) -> np.ndarray:
    """Returns a column of numbers, or of their texts, ``(n_rows,)``; anything else is an error.

    Args:
        frame: The frame.
        column: The name of the column.
        missing: The number that stands for a missing value.
    """
    values = frame[column]
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype if values.notna().all() else object)
    found = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    nowhere = np.isnan(found)
    if nowhere.any():
        strange = nowhere & values.notna().to_numpy()
        if strange.any():
            row = int(strange.argmax())
            raise ValueError(f"{column!r} must hold numbers, but row {row} holds {shown(values.iloc[row])}")
        found = np.where(nowhere, missing, found)
    return found


def ranking(frame: pd.DataFrame, blocks: Blocks, score: np.ndarray) -> np.ndarray:
    """Returns row positions block by block, by falling score, ties by earlier rank, else score, then docno (CT-2, X-4).

    So the order depends on the candidates and not on the order of the rows, which decides only about equal docnos.
    Docnos are slow to sort and are compared only where everything else is equal.
    """
    keys = [blocks.codes, -score]
    order = np.lexsort(keys[::-1])
    if _tied(keys, order):
        if "rank" in frame.columns:
            keys.append(numbers(frame, "rank", missing=np.inf))
        elif "score" in frame.columns:
            keys.append(-numbers(frame, "score", missing=-np.inf))
        order = np.lexsort(keys[::-1])
        if _tied(keys, order):
            keys.append(pd.factorize(frame["docno"], sort=True)[0])
            order = np.lexsort(keys[::-1])
    return order


def _tied(keys: list[np.ndarray], order: np.ndarray) -> bool:
    """Returns whether two neighbours of an order are equal in all keys."""
    equal = [key[order][1:] == key[order][:-1] for key in keys]
    return bool(np.logical_and.reduce(equal).any())


def ranked(
    frame: pd.DataFrame, blocks: Blocks, score: np.ndarray, order: np.ndarray | None = None, **columns: np.ndarray
) -> pd.DataFrame:
    """Returns a new frame with a ``score``, a ``rank`` from 0, and further columns, block by block in rank order.

    All other columns of the input are kept; blocks stand in the order in which their qids first appear.

    Args:
        frame: The results frame; it is not changed.
        blocks: The frame's blocks.
        score: The new scores, shape ``(n_rows,)``; NaN is an error.
        order: The positions of the rows that are kept, block by block in rank order; unless given, all rows as
            :func:`ranking` orders them.
        **columns: Further new columns, each ``(n_rows,)``; they replace columns of the same name.
    """
    score = np.asarray(score, dtype=np.float64)
    if np.isnan(score).any():
        first = frame.iloc[int(np.isnan(score).argmax())]
        raise ValueError(
            f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN, the first for qid {shown(first['qid'])}, "
            f"docno {shown(first['docno'])}; the model's weights are broken (a diverged training?)"
        )
    order = ranking(frame, blocks, score) if order is None else order
    new = {**columns, "score": score}
    new = {name: np.asarray(values)[order] for name, values in new.items()}
    sizes = np.bincount(blocks.codes[order], minlength=len(blocks))
    new["rank"] = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[blocks.codes[order]]
    # Column by column, because each step of a chain of frames would cost a tenth of a millisecond. Each with its type,
    # because pandas 3 turns objects that are all strings into str, which cannot hold half a surrogate pair.
    kept = {
        name: pd.Series(frame[name].array.take(order), dtype=frame[name].dtype, copy=False)
        for name in frame.columns
        if name not in new
    }
    return pd.DataFrame({**kept, **new}, copy=False)


def charged(
    frame: pd.DataFrame, blocks: Blocks, layers: np.ndarray | int, full: int, inputs: np.ndarray, tokens: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the costs of one stage (CT-32, CT-33), which :func:`in_all` adds to those of earlier stages.

    Args:
        frame: The input of the stage.
        blocks: The frame's blocks.
        layers: The layers that the stage ran for each row, ``(n_rows,)`` or one number.
        full: The layers that the full model would have run.
        inputs: The number of inputs of each row, ``(n_rows,)``; a long document may be several inputs.
        tokens: The number of tokens of these inputs.
    """
    return charged_in_all(frame, blocks, (layers * inputs, layers * tokens), (full * inputs, full * tokens))


def charged_in_all(
    frame: pd.DataFrame, blocks: Blocks, spent: Sequence[np.ndarray], whole: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the costs of one stage that are known row by row, as :func:`charged` does.

    Args:
        frame: The input of the stage.
        blocks: The frame's blocks.
        spent: Each row's share of the stage's cost, in layers and in layers times tokens, ``(n_rows,)``.
        whole: Each row's share of the cost of the full model, likewise.
    """
    values = (spent[0], whole[0], spent[1], whole[1])
    return {name: blocks.sums(np.broadcast_to(one, len(frame))) for name, one in zip(COSTS, values, strict=True)}


def in_all(
    frame: pd.DataFrame, columns: dict[str, np.ndarray], full_model: tuple[int, int] | None
) -> dict[str, np.ndarray]:
    """Returns new columns with the costs of one stage added to those of all stages before it.

    The earlier costs become layers of this stage's full model. The whole becomes that model over all inputs that
    entered the first stage, or over those of this stage where these are more.

    Args:
        frame: The input of the stage, which holds the costs of the stages before it, if there were any.
        columns: The new columns, with the costs of this stage alone.
        full_model: The layers of this stage's full model, and the multiply-adds of one of them for a token; None where
            they are not known, so that all stages count as parts of one model.
    """
    if all(name in frame.columns for name in COSTS):
        own, earlier = ([given[name] for name in COSTS] for given in (columns, {n: _numbers(frame, n) for n in COSTS}))
        deeper = larger = 1.0
        if full_model is not None:
            layers, size = full_model
            deeper = layers / _numbers(frame, FULL_LAYERS, layers)
            larger = _numbers(frame, LAYER_SIZE, size) / size
        columns = columns | dict(zip(COSTS, added(own, earlier, deeper, larger), strict=True))
    if full_model is None:
        return columns
    sizes = zip((FULL_LAYERS, LAYER_SIZE), full_model, strict=True)
    return columns | {name: np.full(len(frame), value, COST_COLUMNS[name]) for name, value in sizes}


def added(
    own: Sequence[np.ndarray],
    earlier: Sequence[np.ndarray],
    deeper: np.ndarray | float = 1.0,
    larger: np.ndarray | float = 1.0,
) -> list[np.ndarray]:
    """Returns the four costs of a stage and of those before it, in the order of :data:`COSTS`.

    Args:
        own: Those of the stage, each ``(n,)``.
        earlier: Those of the stages before it, likewise: two NaN where they state nothing, and one where what they
            spent is not known, so that the sum is not known either.
        deeper: How many times the layers of their full model this stage's has, ``(n,)`` or one number.
        larger: How many times the multiply-adds of this stage's layers theirs have, likewise.
    """
    found = []
    for spent, whole in ((0, 1), (2, 3)):
        before = np.where(np.isnan(earlier[whole]), 0.0, earlier[spent] * larger)
        found += [own[spent] + before, np.fmax(own[whole], earlier[whole] * deeper)]
    return found


def _numbers(frame: pd.DataFrame, name: str, missing: float = np.nan) -> np.ndarray:
    """Returns a column of costs ``(n_rows,)``, with a number for missing values, and for a column that is not there."""
    if name not in frame.columns:
        return np.full(len(frame), float(missing))
    values = frame[name].to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isnan(values), missing, values)


def labelled(results: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Returns results with a column ``label``: the grade that the qrels give, 0 for documents without a judgement.

    Frames without a common qid are an error: they are of different types or of different data sets.
    """
    pt.validate.columns(qrels, includes=["qid", "docno", "label"])
    judged = dict(zip(zip(qrels["qid"], qrels["docno"], strict=True), grades(qrels, "qrels"), strict=True))
    if len(results) and len(qrels) and not set(results["qid"]) & set(qrels["qid"]):
        ours, theirs = results["qid"].head(1).item(), qrels["qid"].head(1).item()
        raise ValueError(
            f"results and qrels have no qid in common: the first are {shown(ours)} ({type(ours).__name__}) and "
            f"{shown(theirs)} ({type(theirs).__name__}); are they of the same data set and type?"
        )
    label = [judged.get(pair, 0) for pair in zip(results["qid"], results["docno"], strict=True)]
    return results.assign(label=np.array(label, dtype=np.int64))


def binary(candidates: pd.DataFrame, name: str, relevant_from: int = 1) -> pd.DataFrame:
    """Returns candidates with a ``label`` of 0 or 1: 1 where their grade is ``relevant_from`` or more.

    This is the one rule that turns grades into labels. Data without a relevant or without an irrelevant candidate teach
    nothing and are an error.

    Args:
        candidates: A frame with ``label``.
        name: The name of the data, for errors.
        relevant_from: The least grade that counts as relevant.
    """
    pt.validate.columns(candidates, includes=["label"])
    labels = (grades(candidates, f"the {name} data") >= relevant_from).astype(np.int64)
    if not labels.any():
        raise ValueError(
            f"no positive among the {len(candidates)} candidates of the {name} data: no label is {relevant_from} or "
            "more; are these the right qrels?"
        )
    if labels.all():
        raise ValueError(f"all {len(candidates)} candidates of the {name} data are positive; it needs negatives too")
    return candidates.assign(label=labels)


def grades(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Returns the labels of a frame as whole numbers ``(n,)``; anything else is an error.

    Args:
        frame: A frame with ``label``.
        name: The name of the data, for the error.
    """
    try:
        grades = frame["label"].to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        strange = next(value for value in frame["label"] if not isinstance(value, Number))
        raise ValueError(f"labels of {name} must be whole numbers, but one is {shown(strange)}") from None
    strange = grades[~(grades % 1 == 0)]
    if len(strange):
        raise ValueError(f"labels of {name} must be whole numbers, but {len(strange)} are not, first {strange[0]}")
    return grades.astype(np.int64)


def digest(tables: Sequence[pd.DataFrame | None], text_field: str, *settings: object) -> str | None:
    """Returns a hash of ids, texts and labels, which identifies the data; None if the first table is None.

    Args:
        tables: Candidates, and perhaps qrels.
        text_field: The column with the text.
        *settings: The settings that decide how the texts are read; their ``repr`` is hashed.
    """
    if tables[0] is None:
        return None
    found = hashlib.sha256(repr(settings).encode())
    for table in tables:
        for name in ("qid", "query", "docno", text_field, "label", "teacher"):
            if name in table.columns:
                values = map(repr, table[name].tolist())
                found.update("\n".join([repr(name), *values, ""]).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def mean_average_precision(candidates: pd.DataFrame, score: np.ndarray, qrels: pd.DataFrame) -> float:
    """Returns MAP over the questions of the qrels with at least one positive (X-1), as ir-measures computes it."""
    return _mean("AP", candidates, score, qrels)


def success(candidates: pd.DataFrame, score: np.ndarray, qrels: pd.DataFrame, n: int) -> float:
    """Returns the share of these questions with a positive among the first ``n`` (DC-20)."""
    return _mean(f"Success@{n}", candidates, score, qrels)


def _mean(name: str, candidates: pd.DataFrame, score: np.ndarray, qrels: pd.DataFrame) -> float:
    import ir_measures

    measure = ir_measures.parse_measure(name)
    return ir_measures.calc_aggregate([measure], judgements(qrels), scored(candidates.assign(score=score)))[measure]


def judgements(qrels: pd.DataFrame) -> list:
    """Returns ir-measures' judgements of the questions with at least one positive (X-1), whatever type ids have."""
    from ir_measures import Qrel

    positive = qrels.loc[qrels["label"] > 0, "qid"]
    rows = qrels[qrels["qid"].isin(positive)]
    return [
        Qrel(_name(qid), _name(docno), int(label))
        for qid, docno, label in zip(rows["qid"], rows["docno"], rows["label"], strict=True)
    ]


def scored(results: pd.DataFrame) -> list:
    """Returns ir-measures' documents with scores, whatever type ids have."""
    from ir_measures import ScoredDoc

    columns = (results[name].tolist() for name in ("qid", "docno", "score"))
    return [ScoredDoc(_name(qid), _name(docno), score) for qid, docno, score in zip(*columns, strict=True)]


def _name(value: object) -> str:
    """Returns an id as pytrec_eval takes it; half a surrogate pair would crash the process."""
    return str(value).encode("utf-8", "backslashreplace").decode()
