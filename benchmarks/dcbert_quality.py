"""DC-BERT beside its rivals on open-domain questions: SQuAD's paragraphs, trained on half of its articles.

    python benchmarks/dcbert_quality.py train --way dcbert --joint-layers 1
    python benchmarks/dcbert_quality.py table

BM25 over all paragraphs gives the candidates. Questions about the articles with even numbers train, those about the
last of these articles are development questions, and questions about odd articles, drawn with a fixed seed, are the
test. A paragraph is right when it contains an answer (DC-8, DC-20); ``RR gold`` counts the paragraph alone that the
question was written for.

A way is ``late`` (nothing is trained), ``monolithic``, ``truncated`` (its first two layers, in DistilBERT's place), or
``dcbert`` with its options. ``train`` appends what came of it to a file of JSON lines and does nothing if it is there.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, Success

from pyterrier_cascade import BM25, DCBERT, PBT, PTB, CrossEncoder, DCBertTraining, Training
from pyterrier_cascade.dcbert.supervision import answer_qrels

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))
LAYERED = {"transformer": "", "one_way": "one way "}
"""The variants with K layers, each with what stands before K in the table."""
KEYS = ("way", "variant", "joint_layers", "head", "frozen", "epochs", "questions", "random_first", "loss", "negatives",
        "start", "teacher", "frozen_rate", "rate", "seed")  # fmt: skip
CURVE = (1, 2, 3, 5, 10, 20)


def data(options: argparse.Namespace) -> dict:
    """Returns the corpus, training and development candidates with labels, test candidates, qrels and gold."""
    even, odd = (
        pt.get_dataset("as2:squad-open/dev-v1.1", folder=str(SHARED / "data"), articles=half)
        for half in ("even", "odd")
    )
    corpus = list(even.get_corpus_iter(verbose=False))
    bm25 = BM25.from_docs(corpus)

    def candidates(topics: pd.DataFrame, dataset, n: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        found = (bm25 % n)(topics)
        answers = dataset.get_answers()
        return found, answer_qrels(found, answers[answers["qid"].isin(topics["qid"])])

    def drawn(topics: pd.DataFrame, n: int) -> pd.DataFrame:
        return topics.iloc[np.sort(np.random.default_rng(0).permutation(len(topics))[:n])]

    article = even.get_qrels().set_index("qid")["docno"].str.split("-").str[0].astype(int)
    topics = even.get_topics()
    held_out = topics["qid"].map(article).isin(sorted(article.unique())[-4:])
    train, train_qrels = candidates(drawn(topics[~held_out], options.questions), even, 20)
    dev, dev_qrels = candidates(drawn(topics[held_out], 150), even, 20)
    test, test_qrels = candidates(drawn(odd.get_topics(), options.test_questions), odd, options.depth)
    return {
        "corpus": corpus,
        "train": train.merge(train_qrels, on=["qid", "docno"]),
        "dev": dev.merge(dev_qrels, on=["qid", "docno"]),
        "test": test,
        "qrels": test_qrels,
        "gold": odd.get_qrels()[lambda gold: gold["qid"].isin(test["qid"])],
    }


def worth(results: pd.DataFrame, sets: dict) -> dict[str, float]:
    """Returns the measures of DC-32 and DC-33 and the curve of DC-36."""
    measures = [AP, RR, *(Success @ n for n in CURVE), PBT(bm25=sets["test"]) @ 10, PTB(bm25=sets["test"]) @ 10]
    run, to_measures = pt.model.to_ir_measures(results), pt.model.to_ir_measures
    found = ir_measures.calc_aggregate(measures, to_measures(sets["qrels"]), run)
    gold = ir_measures.calc_aggregate([RR], to_measures(sets["gold"]), run)
    return {str(measure): found[measure] for measure in measures} | {"RR gold": gold[RR]}


def monolithic(options: argparse.Namespace, sets: dict, folder: str | None) -> CrossEncoder:
    """Returns a cross-encoder that is trained, or was and is kept in a folder."""
    if folder and (Path(folder) / "config.json").exists():
        return CrossEncoder.from_pretrained(folder)
    training = Training(
        learning_rate=options.rate,
        head_learning_rate=10 * options.rate,
        epochs=options.epochs,
        negatives=options.negatives,
        seed=options.seed,
    )
    layers = 2 if options.way == "truncated" else None
    ranker = CrossEncoder.from_pretrained(options.model, layers=layers, training=training)
    ranker.fit_candidates(sets["train"], sets["dev"])
    if folder:
        ranker.save_pretrained(folder)
    return ranker


def dcbert(options: argparse.Namespace, sets: dict) -> tuple[DCBERT, pd.DataFrame]:
    """Returns a DC-BERT that is to be trained, and its lists."""
    training = DCBertTraining(
        frozen_epochs=options.frozen,
        epochs=options.epochs,
        learning_rate=options.rate,
        head_learning_rate=options.frozen_rate,
        random_first=options.random_first,
        loss=options.loss,
        negatives=options.negatives,
        patience=options.frozen + options.epochs,
        seed=options.seed,
    )
    source = options.kept if options.start == "monolithic" else options.model
    k = {"joint_layers": options.joint_layers} if options.variant in LAYERED else {}
    ranker = DCBERT.from_pretrained(source, variant=options.variant, head=options.head, training=training, **k)
    lists = sets["train"]
    if options.teacher:
        scores = CrossEncoder.from_pretrained(options.kept, precision="bf16")(lists)
        lists = lists.merge(scores[["qid", "docno", "score"]].rename(columns={"score": "teacher"}), on=["qid", "docno"])
    return ranker, lists


def train(options: argparse.Namespace) -> None:
    """Trains once and keeps the result."""
    key = {name: getattr(options, name) for name in KEYS} | {"model": Path(options.model).name}
    if any(all(row[name] == value for name, value in key.items()) for row in rows_of(options.results)):
        print(f"there already: {key}")
        return
    sets, said, extra = data(options), [], {}
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        if options.way == "late":
            ranker = DCBERT.from_pretrained(options.model, interaction="late", precision="bf16")
        elif options.way == "dcbert":
            ranker, lists = dcbert(options, sets)
            ranker.fit_candidates(lists, sets["dev"])
            ranker = ranker(precision="bf16")
        else:
            ranker = monolithic(options, sets, options.kept)(precision="bf16")
        said = [str(one.message) for one in caught if "did not learn" in str(one.message)]
    seconds = time.perf_counter() - start
    if options.way == "late":
        with tempfile.TemporaryDirectory() as folder:
            for dtype in ("fp16", "int8"):
                cache = ranker.encode(sets["corpus"], Path(folder) / dtype, dtype=dtype)
                found = cache.reranker(interaction="late")(sets["test"])
                extra[f"late, {dtype} cache"] = worth(found, sets)
    row = key | {
        "seconds": round(seconds),
        "said": said,
        "bm25": worth(sets["test"], sets),
        "test": worth(ranker(sets["test"]), sets),
        "extra": extra,
        "course": [] if options.way == "late" else ranker.history.to_dict("records"),
    }
    with Path(options.results).open("a") as file:
        file.write(json.dumps(row) + "\n")
    print({name: key[name] for name in KEYS}, round(seconds), said)
    print({name: round(value, 4) for name, value in row["test"].items()}, flush=True)


def rows_of(path: str) -> list[dict]:
    """Returns the results so far."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def table(options: argparse.Namespace) -> None:
    """Prints means over seeds."""
    rows = rows_of(options.results)
    shown = ["RR gold", "RR", "Success@1", "Success@3", "Success@5", "Success@10", "PBT(bm25)@10", "PTB(bm25)@10"]
    print("| | seeds | " + " | ".join(shown) + " | s |\n|" + "---|" * (len(shown) + 3))
    lines = {"BM25": [(rows[0]["bm25"], 0)]}
    for row in rows:
        lines.setdefault(title(row), []).append((row["test"], row["seconds"]))
        for name, found in row["extra"].items():
            lines.setdefault(name, []).append((found, 0))
    for name, found in lines.items():
        cells = []
        for measure in shown:
            values = [one[measure] for one, _ in found]
            deviation = f" ({np.std(values, ddof=1):.3f})" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{deviation}")
        seconds = np.mean([one for _, one in found])
        print(f"| {name} | {len(found)} | {' | '.join(cells)} | {seconds:.0f} |")


def title(row: dict) -> str:
    """Returns what a training is called in the table."""
    if row["way"] == "late":
        return "late interaction, nothing trained"
    if row["way"] != "dcbert":
        return f"{row['way']}, {row['questions']} questions, {row['epochs']} epochs, rate {row['rate']:g}"
    name = LAYERED.get(row["variant"], row["variant"])
    k = f"{name}K={row['joint_layers']}, {row['head']} head" if row["variant"] in LAYERED else name
    more = {"random first": row["random_first"], "start": row["start"], "teacher": row["teacher"]}
    said = "".join(f", {name} {value}" for name, value in more.items() if value and value != "encoder")
    return (
        f"DC-BERT {k}, {row['questions']} questions, {row['frozen']}+{row['epochs']} epochs, {row['loss']}"
        f", rates {row['frozen_rate']:g} and {row['rate']:g}{said}"
    )


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--way", choices=["late", "monolithic", "truncated", "dcbert"], default="dcbert")
    parser.add_argument("--results", default="dcbert_quality.jsonl", help="file of JSON lines")
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--kept", help="folder of the trained monolithic model, made if it is not there")
    parser.add_argument("--variant", choices=["transformer", "one_way", "linear", "lstm"], default="transformer")
    parser.add_argument("--joint-layers", type=int, default=1)
    parser.add_argument("--head", choices=["late", "compare", "paper"], default="late")
    parser.add_argument("--frozen", type=int, default=3, help="epochs with frozen encoders")
    parser.add_argument("--epochs", type=int, default=0, help="epochs with everything")
    parser.add_argument("--frozen-rate", type=float, default=3e-4, help="of joint layers and head")
    parser.add_argument("--rate", type=float, default=4e-5, help="of the encoders")
    parser.add_argument("--questions", type=int, default=2_400, help="to train on")
    parser.add_argument("--test-questions", type=int, default=300)
    parser.add_argument("--depth", type=int, default=30, help="candidates of a test question")
    parser.add_argument("--random-first", type=float, default=0.0)
    parser.add_argument("--loss", choices=["listwise", "pointwise"], default="listwise")
    parser.add_argument("--negatives", type=int, default=7)
    parser.add_argument("--start", choices=["encoder", "monolithic"], default="encoder")
    parser.add_argument("--teacher", action="store_true", help="learn the monolithic model's scores too")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options) if options.what == "train" else table(options)


if __name__ == "__main__":
    main()
