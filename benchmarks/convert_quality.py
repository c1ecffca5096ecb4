"""What a converted cross-encoder keeps of its teacher, and what it costs: heads distilled without labels, certified.

    python benchmarks/convert_quality.py teacher --teacher wikiqa
    python benchmarks/convert_quality.py states --teacher wikiqa
    python benchmarks/convert_quality.py measure --teacher wikiqa --seed 0
    python benchmarks/convert_quality.py auto --teacher wikiqa --sets wikiqa --seed 0
    python benchmarks/convert_quality.py speed --teacher wikiqa
    python benchmarks/convert_quality.py table > benchmarks/results/convert_quality.md

``teacher`` fine-tunes e5-small as a cross-encoder with labels (or prepares bert-mini-reranker, which has its own).
``states`` makes the one pass of the encoder over all lists and keeps pooled states in ``--work``; the heads of every
seed learn from them. Heads learn on some queries, settings are certified or chosen on others, and quality is reported
on a third kind. "Elsewhere" means heads that learned on WikiQA's training questions alone. ``auto`` lets ``distil``
choose the layers. Nothing is made twice.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import AP, nDCG

from pyterrier_cascade import (
    BM25,
    Cascade,
    CrossEncoder,
    Distillation,
    FirstAnswerLost,
    TopLost,
    Trace,
    Training,
    frames,
)
from pyterrier_cascade.cascade.distillation import PooledStates, learned_heads, read_states
from pyterrier_cascade.cascade.head_learning import agreement, split
from pyterrier_cascade.early_exit.policy import FULL, policies_of
from pyterrier_cascade.early_exit.ranker import HeadScores

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
            "learn": first_queries(train, 0, 120),
            "choose": first_queries(train, 120, 260),
            "test": dataset("trecqa/test").get_candidates(),
        }
    elif name == "scifact":
        bm25 = BM25.from_docs(dataset("scifact/test").get_corpus_iter(verbose=False)) % 100
        train, test = (dataset(f"scifact/{one}").get_topics() for one in ("train", "test"))
        found = {
            "learn": (bm25 % 50)(first_queries(train, 0, 60)),
            "choose": bm25(first_queries(train, 60, 200)),
            "test": bm25(first_queries(test, 0, 60)),
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
    # BERT's own class of tokenizers would make its usual pairs again when it is loaded.
    names = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "model_input_names")
    kept = {name: getattr(tokenizer, name) for name in names} | {"model_max_length": 512}
    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **kept)
    plain.save_pretrained(folder)


def cascade_of(options: argparse.Namespace) -> Cascade:
    """Returns the cascade of a teacher, with fresh heads."""
    return Cascade.from_cross_encoder(
        str(options.work / f"teacher-{options.teacher}"),
        LAYERS.get(options.teacher),
        max_length=LENGTH,
        precision=options.precision,
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


class Heads:
    """The heads of one teacher and seed, learned from the states of some queries.

    Args:
        options: The teacher and the seed.
        learned: The set whose queries teach.
    """

    def __init__(self, options: argparse.Namespace, learned: str):
        states, *_ = states_of(options, learned, "learn")
        cascade = cascade_of(options)
        settings = Distillation(seed=options.seed)
        held = split(len(np.unique(states.questions)), settings)[states.questions]
        self.heads, _, _ = learned_heads(cascade.model.loaded, states, held, settings, False)

    @torch.inference_mode()
    def trace(self, options: argparse.Namespace, name: str, part: str) -> Trace:
        """Returns the trace of a list: the scores of these heads and the teacher's own, from the states."""
        states, frame, order = states_of(options, name, part)
        rows = np.arange(len(frame))
        scores = [
            np.concatenate(
                [
                    self.heads[layer](torch.from_numpy(states.features(layer)(few)))[:, 0].numpy()
                    for few in np.array_split(rows, -(-len(rows) // 4_096))
                ]
            )
            for layer in states.layers[:-1]
        ]
        known = Known(np.column_stack([*scores, states.scores]), states.layers, frame.iloc[order])
        return Trace.record(known, frame)


class Known:
    """Scores that are known, with what a trace asks of a ranker.

    Args:
        scores: ``(n, n_heads)``, in the order of a trace.
        layers: The layers of the heads.
        frame: The candidates in this order.
    """

    reuses_encodings, text_field, engine, precision, computed_precision = True, "text", "torch", "fp32", "fp32"

    def __init__(self, scores: np.ndarray, layers: tuple[int, ...], frame: pd.DataFrame):
        self.head_layers, self.full_layers = layers, layers[-1]
        self.found = dict(zip(zip(frame["qid"], frame["docno"], strict=True), scores, strict=True))

    def weight_holders(self) -> tuple:
        """Returns nothing: nothing is to be calibrated."""
        return ()

    def full_model(self) -> tuple[int, int]:
        """Returns the layers; their size makes no difference, because no other model is beside them."""
        return self.full_layers, 1

    def head_costs(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the layers."""
        return layers

    def fingerprint(self) -> str:
        """Returns a name."""
        return "known"

    def has_seen(self, queries: list[str]) -> np.ndarray:
        """Returns that no query was learned from."""
        return np.zeros(len(queries), dtype=bool)

    def head_scores(self, frame: pd.DataFrame, blocks: frames.Blocks, plan, prune: bool = True) -> HeadScores:
        """Returns the scores that are known."""
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        pairs = zip(frame["qid"].iloc[rows], frame["docno"].iloc[rows], strict=True)
        lengths = frame["text"].str.len().to_numpy()[rows]
        return HeadScores(rows, np.array([self.found[pair] for pair in pairs]), lengths)


def measure(options: argparse.Namespace) -> None:
    """Learns heads, and appends a row for each set and setting to the results."""
    for learned, name in [(name, name) for name in options.sets] + [
        ("wikiqa", name) for name in options.sets if name != "wikiqa"
    ]:
        keep(options, learned, name, lambda learned=learned: Heads(options, learned))


def keep(options: argparse.Namespace, learned: str, name: str, heads: Callable[[], "Heads | Chosen"]) -> None:
    """Appends the results of some heads on a set, unless they are there."""
    results = options.work / "convert_quality.jsonl"
    done = {row["key"] for row in map(json.loads, results.read_text().splitlines())} if results.exists() else set()
    key = f"{options.teacher} {learned} {name} {options.seed}"
    if key in done:
        return
    rows = list(settings_of(options, heads(), name))
    with results.open("a") as file:
        common = {"teacher": options.teacher, "learned": learned, "set": name, "seed": options.seed}
        file.write(json.dumps({"key": key, **common, "rows": rows}) + "\n")
    print(key, *(f"{row['setting']} {row['value']:.4f} {row['cost']:.3f}" for row in rows), sep="\n  ", flush=True)


class Chosen:
    """The cascade of one teacher and seed whose layers ``distil`` chose.

    Args:
        options: The teacher and the seed.
        name: The set whose queries teach.
    """

    def __init__(self, options: argparse.Namespace, name: str):
        folder = options.work / f"states-{options.teacher}" / f"{name}-auto"
        settings = Distillation(seed=options.seed)
        self.cascade = cascade_of(options).distil(lists(name)["learn"], "auto", folder=str(folder), settings=settings)

    def trace(self, options: argparse.Namespace, name: str, part: str) -> Trace:
        """Returns the trace of a list."""
        return self.cascade.trace(lists(name)[part])


def auto(options: argparse.Namespace) -> None:
    """Appends the results of cascades whose layers were chosen from the queries that taught their heads."""
    for name in options.sets:
        keep(options, "auto", name, lambda name=name: Chosen(options, name))


def settings_of(options: argparse.Namespace, heads: Heads | Chosen, name: str) -> Iterator[dict]:
    """Yields quality and cost on the test queries of a set for each head, some alphas, and what was chosen for it."""
    test, wanted = heads.trace(options, name, "test"), MEASURES[name]
    judged = qrels(name)
    judged = judged[judged["qid"].isin(test.qids)]
    first, top = FirstAnswerLost(), TopLost(10, 0.9)
    for place, layer in enumerate(test.layers):
        correlation, same, gain = agreement(test.scores[:, place], test.scores[:, -1], test.questions)
        full = test.sweep(judged, [wanted], [0.0], plan=(layer,)).full
        agrees = {"correlation": correlation, "top1": same, "ndcg": gain}
        yield {"setting": f"head {layer}", "value": full[str(wanted)], "cost": full["RelativeCost"], **agrees}

    def row(setting: str, policy: dict, **more) -> dict:
        found = test.sweep(judged, [wanted], settings=[policy]).frame.iloc[0]
        lost = {str(k): float(risk_of_setting(test, risk, policy)) for k, risk in (("lost1", first), ("lost10", top))}
        value, cost = float(found[str(wanted)]), float(found["RelativeCost"])
        return {"setting": setting, "value": value, "cost": cost, **lost, "policy": repr(policy), **more}

    for alpha in (0.3, 0.4, 0.5):
        yield row(f"alpha={alpha}", {"alpha": alpha})
    # The 22 topics of DL19 can neither certify nor choose: what is chosen there is chosen in hindsight.
    choose = heads.trace(options, name, "choose") if "choose" in lists_of(name) else test
    if choose is not test:
        for kind, policies in (("", None), (" margins", margins(choose))):
            certificate = choose.certify(first, settings=policies)
            yield row(f"certified{kind}", certificate.settings, promised=certificate.at_most)
    # Margins against alphas: the cheapest of each kind that loses as little on the queries of choice.
    for kind, policies in (("alphas", alphas(len(test.layers) - 1)), ("margins", margins(choose))):
        for risk_name, risk in (("first answers", first), ("top ten", top)):
            yield row(f"best {kind}, {risk_name}", cheapest(choose, risk, policies))


def lists_of(name: str) -> tuple[str, ...]:
    """Returns the parts of a set."""
    return ("learn", "test") if name == "dl19" else ("learn", "choose", "test")


def risk_of_setting(trace: Trace, risk, policy: dict) -> float:
    """Returns the risk of a setting on the questions of a trace."""
    return outcomes(trace, risk, [policy])[0][-1]


def outcomes(trace: Trace, risk, policies: list[dict]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the risks and costs of settings, the full cascade's first."""
    losses, costs = risk.outcomes(trace, risk.watched(trace), policies_of([FULL, *policies], {}))
    return losses.mean(1), costs


def cheapest(trace: Trace, risk, policies: list[dict], at_most: float = 0.05) -> dict:
    """Returns the cheapest setting whose risk on the questions of a trace is small enough."""
    risks, costs = outcomes(trace, risk, policies)
    return ([FULL, *policies])[int(np.where(risks <= at_most, costs, np.inf).argmin())]


def alphas(n_drops: int) -> list[dict]:
    """Returns the grid of alphas."""
    return [{"alpha": one} for one in product((0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9), repeat=n_drops)]


def margins(trace: Trace) -> list[dict]:
    """Returns as large a grid of margins, in the spread of the scores, from the best and from the tenth."""
    spread = float(np.std(trace.scores[:, -1]))
    n_drops = len(trace.layers) - 1
    steps = [round(spread * one, 3) for one in (0.1, 0.25, 0.5, 1.0, 1.5, 2.5)]
    return [{"margin": one, "margin_k": k} for k in (1, 10) for one in product(steps, repeat=n_drops)]


def speed(options: argparse.Namespace) -> None:
    """Prints the time of cascades on a set's test lists, on torch and int8, beside the best peer and the teacher."""
    from speed import Bench, openvino_whole, sentence_transformers

    name = options.sets[0]
    test = lists(name)["test"].head(options.pairs)
    folder = options.work / f"cascade-{options.teacher}-{name}-{options.seed}"
    if not folder.is_dir():
        cascade_of(options).distil(lists(name)["learn"], settings=Distillation(seed=options.seed)).save_pretrained(
            str(folder)
        )
    cascade = Cascade.from_pretrained(str(folder), max_length=LENGTH)
    bench = Bench(
        str(options.work / f"teacher-{options.teacher}"),
        test["query"].tolist(),
        test["text"].tolist(),
        1,
        options.rounds,
    )
    bench.model.tokenizer.model_max_length = LENGTH
    peers = {"sentence-transformers": sentence_transformers(bench), **openvino_whole(bench)}
    engines = {"torch fp32": ("torch", "fp32"), "torch bf16": ("torch", "bf16"), "openvino int8": ("openvino", "int8")}
    contenders = dict(peers)
    for label, (engine, precision) in engines.items():
        for alpha in (0.0, 0.3, 0.4, 0.5):
            ranker = cascade(engine=engine, precision=precision, alpha=alpha)
            contenders[f"{label}, alpha={alpha}"] = lambda ranker=ranker: ranker(test)
    times = {label: [] for label in contenders}
    for number in range(options.rounds + 1):
        for label, score in contenders.items():
            start = time.perf_counter()
            score()
            if number:
                times[label].append(time.perf_counter() - start)
    best = np.array(times["OpenVINO whole int8"])
    rows = [(label, np.median(taken), np.median(best / np.array(taken))) for label, taken in times.items()]
    print(f"\n{options.teacher}, {name}: {len(test)} pairs, median of {options.rounds} rounds\n")
    print("| | seconds | x OpenVINO whole int8 |\n|---|---|---|")
    print("\n".join(f"| {label} | {seconds:.2f} | {ratio:.2f} |" for label, seconds, ratio in rows))


def table(options: argparse.Namespace) -> None:
    """Prints the table: means over seeds."""
    found = [json.loads(line) for line in (options.work / "convert_quality.jsonl").read_text().splitlines()]
    rows = pd.DataFrame(
        {name: one[name] for name in ("teacher", "set", "learned", "seed")} | row
        for one in found
        for row in one["rows"]
    )
    where = [rows["learned"] == rows["set"], rows["learned"] == "auto"]
    rows["learned"] = np.select(where, ["here", "here at layers that were chosen"], "elsewhere")
    for (teacher_name, name, learned), part in rows.groupby(["teacher", "set", "learned"], sort=False):
        seeds = part["seed"].nunique()
        print(f"\n## Teacher {teacher_name}, {name}, heads learned {learned} ({seeds} seeds)\n")
        print(f"| | {MEASURES[name]} | sd | - teacher | layers | first answer lost | top ten lost |")
        print("|---|---|---|---|---|---|---|")
        last = [setting for setting in part["setting"] if setting.startswith("head")][-1]
        whole = part.loc[part["setting"] == last, "value"].mean()
        for setting, same in part.groupby("setting", sort=False):
            deviation = same["value"].std() if seeds > 1 else float("nan")
            lost = " | ".join(f"{same[name].mean():.3f}" if same[name].notna().all() else "" for name in LOST)
            value, cost = same["value"].mean(), same["cost"].mean()
            print(f"| {setting} | {value:.4f} | {deviation:.4f} | {value - whole:+.4f} | {cost:.3f} | {lost} |")


LOST = ("lost1", "lost10")
WHAT = {one.__name__: one for one in (teacher, states, measure, auto, speed, table)}


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("--teacher", choices=TEACHERS)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seed", type=int, default=0, help="of the split, the order and the start of the heads")
    parser.add_argument("--precision", default="fp32", help="of the pass that reads states")
    parser.add_argument("--pairs", type=int, default=1_000, help="pairs that are timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("convert-work"), help="folder for teachers and states")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    WHAT[options.what](options)


if __name__ == "__main__":
    main()
