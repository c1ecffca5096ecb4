"""What a converted cross-encoder keeps of its teacher, and what it costs: heads distilled without labels, certified.

    python benchmarks/convert_quality.py teacher --teacher wikiqa
    python benchmarks/convert_quality.py states --teacher wikiqa
    python benchmarks/convert_quality.py measure --teacher wikiqa --seed 0
    python benchmarks/convert_quality.py speed --teacher wikiqa
    python benchmarks/convert_quality.py table > benchmarks/results/convert_quality.md

``teacher`` fine-tunes e5-small as a cross-encoder with labels (or prepares bert-mini-reranker, which has its own); all
further steps see no label but those of the last table. ``states`` makes the one pass of the encoder over all lists and
keeps pooled states in ``--work``; every seed learns heads from them. Heads learn on some queries, settings are certified
or chosen on others, and quality is reported on a third kind; "elsewhere" means heads that learned on WikiQA's training
questions alone. Everything is kept in ``--work`` and not made twice.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import AP, nDCG

from pyterrier_cascade import BM25, Cascade, CrossEncoder, Distillation, Training, frames
from pyterrier_cascade.cascade.distillation import PooledStates, read_states
from pyterrier_cascade.cascade.head_learning import agreement, learn_head, split
from pyterrier_cascade.cascade.model import fresh_head

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))
TEACHERS = ("wikiqa", "trecqa", "squad", "mini")
SETS = ("wikiqa", "trecqa", "scifact", "dl19")
MEASURES = {"wikiqa": AP, "trecqa": AP, "scifact": nDCG @ 10, "dl19": nDCG @ 10}
LAYERS = {"mini": (1, 2, 3, 4)}
LENGTH = 128


def dataset(name: str):
    """Returns a data set of the shared folder."""
    return pt.get_dataset(f"as2:{name}", folder=str(SHARED / "data"))


def first_queries(frame: pd.DataFrame, start: int, stop: int) -> pd.DataFrame:
    """Returns the candidates of some queries, in an order that the seed 0 shuffles."""
    qids = np.random.default_rng(0).permutation(np.sort(frame["qid"].unique()))[start:stop]
    return frame[frame["qid"].isin(qids)].reset_index(drop=True)


def lists(name: str) -> dict[str, pd.DataFrame]:
    """Returns the lists of a set: those that heads learn from, those that settings are chosen on, and the test."""
    if name == "wikiqa":
        found = {part: dataset(f"wikiqa/{one}").get_candidates() for part, one in _SPLITS.items()}
    elif name == "trecqa":
        train = dataset("trecqa/train").get_candidates()
        found = {
            "learn": first_queries(train, 0, 200),
            "choose": first_queries(train, 200, 400),
            "test": dataset("trecqa/test").get_candidates(),
        }
    elif name == "scifact":
        bm25 = BM25.from_docs(dataset("scifact/test").get_corpus_iter(verbose=False)) % 100
        train, test = (dataset(f"scifact/{one}").get_topics() for one in ("train", "test"))
        found = {
            "learn": bm25(first_queries(train, 0, 60)),
            "choose": (bm25 % 50)(first_queries(train, 60, 180)),
            "test": bm25(first_queries(test, 0, 100)),
        }
    else:
        # The two halves of the topics: heads learn on the first and are tested on the second.
        pool = dataset("dl19").get_candidates()
        found = {"learn": first_queries(pool, 0, 21), "test": first_queries(pool, 21, 43)}
    return {part: frame.drop(columns="label", errors="ignore") for part, frame in found.items()}


_SPLITS = {"learn": "train", "choose": "dev", "test": "test"}


def qrels(name: str) -> pd.DataFrame:
    """Returns the judgements of a set's test queries."""
    return dataset(name if name == "dl19" else f"{name}/test").get_qrels()


def teacher(options: argparse.Namespace) -> None:
    """Trains a teacher with labels, once."""
    folder = options.work / f"teacher-{options.teacher}"
    if (folder / "config.json").is_file():
        return
    if options.teacher == "mini":
        return prompted(SHARED / "models" / "bert-mini-reranker", folder)
    how = {"learning_rate": 3e-5, "head_learning_rate": 3e-4, "tokens_per_batch": 1_000, "epochs": 2}
    dev = None
    if options.teacher == "wikiqa":
        train, dev = (dataset(f"wikiqa/{one}").get_candidates() for one in ("train", "dev"))
    elif options.teacher == "trecqa":
        # Questions that no head learns from later.
        train, dev = first_queries(dataset("trecqa/train").get_candidates(), 400, 1_229), None
        how |= {"negatives": 5}
    else:
        train, how = squad_lists(), how | {"epochs": 1, "tokens_per_batch": 2_000}
    ranker = CrossEncoder.from_pretrained(
        str(SHARED / "models" / "e5-small"), training=Training(**how), max_length=LENGTH, verbose=True
    )
    ranker.fit_candidates(train, dev).save_pretrained(str(folder))


def squad_lists(n_questions: int = 1_500, n_negatives: int = 4) -> pd.DataFrame:
    """Returns questions about SQuAD's even articles, each with its paragraph and some that BM25 ranks high."""
    data = pt.get_dataset("as2:squad-open/dev-v1.1", folder=str(SHARED / "data"), articles="even")
    bm25 = BM25.from_docs(data.get_corpus_iter(verbose=False)) % 20
    found = frames.labelled(bm25(first_queries(data.get_topics(), 0, n_questions)), data.get_qrels())
    found = found[found.groupby("qid")["label"].transform("max") > 0]
    place = found[found["label"] == 0].groupby("qid").cumcount()
    return found.drop(index=place.index[place >= n_negatives]).reset_index(drop=True)


def prompted(source: Path, folder: Path) -> None:
    """Writes bert-mini-reranker with a tokenizer that makes of a pair the one text that it was trained on."""
    import transformers
    from tokenizers.processors import TemplateProcessing

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    words = {name: tokenizer(f"{name}:", add_special_tokens=False)["input_ids"] for name in ("query", "sentence")}
    special = [
        {"id": name, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)} for name, ids in words.items()
    ] + [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] query $A sentence $B:0 [SEP]", special_tokens=special
    )
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def cascade_of(options: argparse.Namespace) -> Cascade:
    """Returns the cascade of a teacher, with fresh heads."""
    return Cascade.from_cross_encoder(
        str(options.work / f"teacher-{options.teacher}"), LAYERS.get(options.teacher), max_length=LENGTH, verbose=True
    )


def states_of(options: argparse.Namespace, name: str, part: str) -> tuple[PooledStates, pd.DataFrame, np.ndarray]:
    """Returns the states of a list, the list, and the order of its rows in the states."""
    cascade, frame = cascade_of(options), lists(name)[part]
    blocks = frames.Blocks.of(frame)
    folder = options.work / f"states-{options.teacher}" / f"{name}-{part}"
    states = read_states(cascade, frame, blocks, cascade.head_layers, folder)
    return states, frame, frames.ranking(frame, blocks, np.zeros(len(frame)))


def states(options: argparse.Namespace) -> None:
    """Reads all states of a teacher's lists."""
    for name in options.sets:
        for part in lists(name):
            found, frame, _ = states_of(options, name, part)
            print(options.teacher, name, part, frame["qid"].nunique(), len(frame), len(found.scores), flush=True)
