"""Questions with labelled candidates, as a frame and as files."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd


def questions(n: int, seed: int, size: int = 5) -> pd.DataFrame:
    """Questions of which each has one answer that names what is asked for; docnos belong to one text."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n):
        asked, other = rng.permutation(["ship", "town"])
        for place in range(size):
            right = place == number % size
            start = rng.choice(["the", "in", "Ångström", '"a'])
            text = f"{start} {asked if right else other} was founded"
            row = (f"q{seed}-{number}é", f"what {asked}", f"d{seed}-{number}-{place}", text, int(right))
            rows.append((*row, float(size - place), place))
    columns = ["qid", "query", "docno", "text", "label", "score", "rank"]
    return pd.DataFrame(rows, columns=columns)


CANDIDATES = questions(6, 1)


def tsv(path: Path, frame: pd.DataFrame, header: bool = True) -> Path:
    """Writes a frame as it is, without quotes; gzipped if the name says so."""
    lines = ["\t".join(frame.columns)] * header + ["\t".join(map(str, row)) for row in frame.itertuples(index=False)]
    return written(path, "".join(f"{line}\n" for line in lines))


def written(path: Path, text: str) -> Path:
    """Writes a text in UTF-8; gzipped if the name says so."""
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def run_of(frame: pd.DataFrame) -> str:
    """A TREC run of a frame."""
    columns = (frame[name] for name in ("qid", "docno", "rank", "score"))
    return "".join(f"{qid} Q0 {docno} {rank} {score} bm25\n" for qid, docno, rank, score in zip(*columns, strict=True))


def table(text: str) -> list[dict]:
    """The rows of a TSV with a header; numbers as such, None for what is empty."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(lines[0], map(_read, line), strict=True)) for line in lines[1:]]


def _read(field: str):
    try:
        return float(field) if field else None
    except ValueError:
        return field


def write_lists(folder: Path) -> SimpleNamespace:
    """Writes the candidates in all forms."""
    frame = CANDIDATES
    documents = frame[["docno", "text"]]
    records = [json.dumps(record) for record in documents.to_dict("records")]
    judged = "".join(f"{qid} 0 {docno} {label}\n" for qid, docno, label in frame[["qid", "docno", "label"]].to_numpy())
    return SimpleNamespace(
        run=written(folder / "bm25.run", run_of(frame)),
        run_gz=written(folder / "bm25.run.gz", run_of(frame)),
        topics=tsv(folder / "topics.tsv", frame[["qid", "query"]].drop_duplicates(), header=False),
        docs=tsv(folder / "docs.tsv", documents, header=False),
        jsonl=written(folder / "docs.jsonl.gz", "".join(f"{record}\n" for record in records)),
        candidates=tsv(folder / "candidates.tsv", frame[["label", "docno", "qid", "score", "text", "query"]]),
        labelled=tsv(folder / "labelled.tsv.gz", frame.drop(columns=["score", "rank"])),
        qrels=written(folder / "qrels", judged),
    )
