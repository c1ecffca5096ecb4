"""What scores depend on changes the identity of traces, caches, graphs, trainings and transfers; nothing else does."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CascadeTraining,
    CrossEncoder,
    SequentialReranker,
    Tanda,
    Training,
    identity,
)
from pyterrier_cascade.encoder import openvino_executor, openvino_graphs
from pyterrier_cascade.training.identity import identity as training_identity
from tests import tiny
from tests.few_docs import DOCS
from tests.lists import candidates
from tests.standing.hostile import edited

LISTS = candidates((5, 4)).assign(label=lambda frame: (frame["rank"] == 0).astype(int))
ALL = {"trace", "graphs", "training", "transfer"}
READ = ALL - {"graphs"}
LEARNT = {"training", "transfer"}


def identities(folder: str | Path) -> dict[str, object]:
    """The identities of all that is made with the cascade in a folder."""
    cascade = Cascade.from_pretrained(str(folder))
    module, executors = cascade.model.loaded.module, cascade.model.loaded.executors
    tokens = cascade._tokenize(*cascade._texts(LISTS))
    examples = [tokens.lengths, *tokens.columns.values()]
    return {
        "trace": cascade.fingerprint(),
        "graphs": openvino_graphs.fingerprint(executors.encoder, executors.heads),
        "training": training_identity(Training(), module, examples, cascade.digest([LISTS])),
        "transfer": Tanda(cascade, LISTS)._transfer_identity(cascade),
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("models")
    encoder = tiny.save(root / "encoder", layers=3, outputs=None)
    Cascade.from_pretrained(encoder, layers=(2, 3)).save_pretrained(str(root / "cascade"))
    DCBERT.from_pretrained(encoder).save_pretrained(str(root / "dcbert"))
    return root


@pytest.fixture(scope="module")
def before(models) -> dict[str, object]:
    return identities(models / "cascade")


def config(**fields) -> Callable[[Path], None]:
    return lambda folder: edited(folder / "config.json", **fields)


def encoder(**fields) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        before = json.loads((folder / "config.json").read_text())["encoder"]
        edited(folder / "config.json", encoder=before | fields)

    return change


def weight(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights[name][-1] += 0.5
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


def tokenizer(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def change_file(folder: Path) -> None:
        path = folder / "tokenizer.json"
        steps = json.loads(path.read_text())
        change(steps)
        path.write_text(json.dumps(steps))

    return change_file


def exchanged(steps: dict) -> None:
    words = steps["model"]["vocab"]
    words["ship"], words["town"] = words["town"], words["ship"]


def of_tokenizer(**fields) -> Callable[[Path], None]:
    return lambda folder: edited(folder / "tokenizer_config.json", **fields)


CUT = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}

FOLDERS = {
    "another folder": (lambda folder: None, set()),
    "version of transformers": (config(transformers_version="4.0.0"), set()),
    "its encoder's origin": (encoder(_name_or_path="elsewhere", transformers_version="4.0.0"), set()),
    "attention": (encoder(attn_implementation="eager", _attn_implementation="eager"), set()),
    "record": (config(trained_on={"questions": 1, "candidates": 2, "positives": 1, "training": "-"}), set()),
    "dtype and labels": (encoder(dtype="float16", id2label={"0": "no", "1": "yes"}, use_cache=False), set()),
    "curves": (config(probability={"2": [1.0, 0.0], "3": [1.0, 0.0]}), set()),
    "model card": (lambda folder: (folder / "README.md").write_text("another"), set()),
    "decoder of the tokenizer": (tokenizer(lambda steps: steps.update(decoder=None)), set()),
    "last call of the tokenizer": (tokenizer(lambda steps: steps.update(truncation=CUT)), set()),
    "a weight of the encoder": (weight("encoder.encoder.layer.0.output.dense.weight"), ALL),
    "a weight of a head": (weight("heads.0.6.weight"), ALL),
    "attention heads": (encoder(num_attention_heads=4), ALL),
    "activation": (encoder(hidden_act="relu"), ALL),
    "norm": (encoder(layer_norm_eps=0.1), ALL),
    "pooling": (config(pooling="mean"), ALL),
    "head layers": (config(layers=[1, 3]), ALL),
    "dropout": (encoder(hidden_dropout_prob=0.3), LEARNT),
    "dropout of the heads": (config(dropout=0.3), LEARNT),
    "words": (tokenizer(exchanged), READ),
    "case": (tokenizer(lambda steps: steps["normalizer"].update(lowercase=False)), READ),
    "special tokens": (tokenizer(lambda steps: steps["post_processor"].update(sep=["[MASK]", 4])), READ),
    "length of the tokenizer": (of_tokenizer(model_max_length=20), READ),
    "inputs of the tokenizer": (of_tokenizer(model_input_names=["input_ids", "attention_mask"]), READ),
    "side that is cut": (of_tokenizer(truncation_side="left"), READ),
}  # fmt: skip
"""Changes of a cascade's folder, and the identities that change with them."""


@pytest.mark.parametrize("name", FOLDERS)
def test_changes_of_a_folder(name, models, before, tmp_path):
    change, expected = FOLDERS[name]
    folder = Path(shutil.copytree(models / "cascade", tmp_path / "other"))
    change(folder)
    after = identities(folder)
    assert {kind for kind in before if before[kind] != after[kind]} == expected


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({}, False),
        ({"max_length": 512}, False),
        ({"token_budget": 100, "verbose": True, "device": "cpu", "alpha": 0.5}, False),
        ({"training": CascadeTraining(epochs=9)}, False),
        ({"max_length": 64}, True),
        ({"passages": "max"}, True),
        ({"precision": "bf16"}, True),
        ({"engine": "openvino"}, True),
        ({"text_field": "body"}, True),
    ],
    ids=str,
)
def test_settings_of_a_trace(settings, changes, models):
    cascade = Cascade.from_pretrained(str(models / "cascade"))
    assert (cascade(**settings).fingerprint() != cascade.fingerprint()) is changes
    if not settings.keys() & {"alpha", "training"}:
        one = CrossEncoder.from_pretrained(str(models / "encoder"), layers=2)
        found = [SequentialReranker([model]).fingerprint() for model in (one, one(**settings))]
        assert len(set(found)) == 1 + changes


def test_the_precision_that_is_computed(models, monkeypatch):
    """Without the hardware OpenVINO computes bf16 in fp32, and the rest of int8 too."""
    cascade = Cascade.from_pretrained(str(models / "cascade"), engine="openvino")

    def found() -> list[str]:
        return [cascade(precision=precision).fingerprint() for precision in ("fp32", "bf16", "int8", "mixed")]

    monkeypatch.setattr(openvino_executor, "low_precision", lambda device: "bf16")
    low = found()
    monkeypatch.setattr(openvino_executor, "low_precision", lambda device: "fp32")
    exact = found()
    assert [one == other for one, other in zip(low, exact, strict=True)] == [True, False, False, False]
    assert exact[0] == exact[1] and len({*low, *exact}) == 6


def test_the_calibration(models):
    cascade = Cascade.from_pretrained(str(models / "cascade"), engine="openvino", precision="int8")
    found = [cascade.fingerprint()]
    for seed in (0, 1, 1):
        found.append(cascade.calibrate(candidates((40,), seed=seed)).fingerprint())
    assert found[2] == found[3] and len(set(found)) == 3
    assert cascade(precision="fp32").fingerprint() == Cascade.from_pretrained(
        str(models / "cascade"), engine="openvino"
    ).fingerprint()  # fmt: skip


DOCUMENTS = {
    "another folder": (lambda folder: None, False),
    "record": (config(trained_on={"questions": 1, "candidates": 2, "positives": 1, "training": "-"}), False),
    "dropout": (encoder(hidden_dropout_prob=0.3), False),
    "a weight of the joint layers": (weight("joint.encoder.encoder.layer.0.output.dense.weight"), False),
    "a weight of the question's encoder": (weight("encoders.question.encoder.layer.0.output.dense.weight"), False),
    "a weight of the document's encoder": (weight("encoders.document.encoder.layer.0.output.dense.weight"), True),
    "attention heads": (encoder(num_attention_heads=4), True),
    "activation": (encoder(hidden_act="relu"), True),
    "words": (tokenizer(exchanged), True),
    "length of the tokenizer": (of_tokenizer(model_max_length=20), True),
}
"""Changes of a DC-BERT's folder, and whether a cache is then another model's."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_changes_of_a_dcbert_and_its_cache(name, models, tmp_path):
    change, expected = DOCUMENTS[name]
    before = DCBERT.from_pretrained(str(models / "dcbert"))
    folder = Path(shutil.copytree(models / "dcbert", tmp_path / "other"))
    change(folder)
    after = DCBERT.from_pretrained(str(folder))
    assert (before.document_fingerprint() != after.document_fingerprint()) is expected


def test_a_cache_refuses_a_model_of_other_attention_heads(models, tmp_path):
    cache = DCBERT.from_pretrained(str(models / "dcbert")).encode(DOCS, tmp_path / "cache")
    folder = Path(shutil.copytree(models / "dcbert", tmp_path / "other"))
    encoder(num_attention_heads=4)(folder)
    lists = LISTS.iloc[:2].assign(docno=[DOCS[0]["docno"], DOCS[1]["docno"]])
    with pytest.raises(
        ValueError, match=f"^the cache at '{tmp_path / 'cache'}' was made by .*; encode the corpus with"
    ):
        cache.reranker(DCBERT.from_pretrained(str(folder)), interaction="late")(lists)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"query_length": 10, "interaction": "late", "verbose": True, "text_field": "body"}, False),
        ({"passages": "max"}, True),
        ({"document_length": 20}, True),
        ({"precision": "bf16"}, True),
    ],
    ids=str,
)
def test_settings_of_a_cache(settings, changes, models):
    dcbert = DCBERT.from_pretrained(str(models / "dcbert"), document_length=30)
    assert (dcbert(**settings).document_fingerprint() != dcbert.document_fingerprint()) is changes


def test_a_training_of_automatic_precision_stays_on_machines_of_that_precision(models, monkeypatch):
    from pyterrier_cascade.encoder import device

    cascade, found = Cascade.from_pretrained(str(models / "cascade")), []
    for has in (True, False):
        monkeypatch.setattr(device, "has_bf16", lambda one, has=has: has)
        found.append(Tanda(cascade, LISTS)._transfer_identity(cascade))
    assert [name for name in found[0] if found[0][name] != found[1][name]] == ["precision"]
    assert [one["precision"] for one in found] == ["bf16", "fp32"]


def test_weights_are_hashed_again_only_after_they_changed(models, monkeypatch):
    hashed, real = [], identity.of_weights
    monkeypatch.setattr(identity, "of_weights", lambda weights: hashed.append(1) or real(weights))
    cascade = Cascade.from_pretrained(str(models / "cascade"))
    before = cascade.fingerprint()
    assert cascade(max_length=64).fingerprint() != before == cascade.fingerprint() and len(hashed) == 1
    with torch.no_grad():
        cascade.model.loaded.module.heads[0][0].weight.add_(1)
    changed = cascade.fingerprint()
    assert changed != before and len(hashed) == 2
    cascade.model.note(probability={"2": [1.0, 0.0]})
    assert cascade.fingerprint() == changed and len(hashed) == 2


def test_a_training_and_a_distillation_change_it(models, tmp_path):
    cascade = Cascade.from_pretrained(str(models / "cascade"), training=CascadeTraining(epochs=1, learning_rate=1e-3))
    found = [cascade.fingerprint()]
    found.append(cascade.fit_candidates(LISTS).fingerprint())
    cascade.save_pretrained(str(tmp_path / "saved"))
    assert cascade.fingerprint() == Cascade.from_pretrained(str(tmp_path / "saved")).fingerprint() == found[-1]
    assert len(set(found)) == 2
    folder = tiny.save(tmp_path / "bert", layers=3)
    converted = Cascade.from_cross_encoder(folder, layers=(1, 3))
    before = converted.fingerprint()
    assert converted.distil(candidates((6,) * 8)).fingerprint() != before


WITHOUT_EFFECT = {"classifier_bias", "max_position_embeddings"}
"""Fields that change the identity and not these scores: weights that start at zero, a limit that no text reaches."""


def scores_and_identity(folder: Path) -> tuple[np.ndarray, str]:
    ranker = CrossEncoder.from_pretrained(str(folder))
    frame = LISTS.assign(text=LISTS["text"] + " " + LISTS["text"])
    return ranker.relevance(frame)[0], ranker.fingerprint()


def others(value) -> list:
    """Other values of a field."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, max(value // 2, 1)]
    if isinstance(value, float):
        return [0.25, 10.0]
    if isinstance(value, list):
        return [value[::-1]]
    if isinstance(value, dict):
        return [value | {name: one} for name in value for one in others(value[name])]
    return ["relu", "mean", "eager"] if isinstance(value, str) else [1, "relu"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["bert", *(pytest.param(one, marks=pytest.mark.slow) for one in tiny.FAMILIES[1:])])
def test_every_field_that_changes_scores_changes_the_identity_and_no_other(family, tmp_path):
    """Fields of a configuration are known by name; this finds those that nobody thought of."""
    folder = Path(tiny.save(tmp_path / "model", family))
    fields = json.loads((folder / "config.json").read_text())
    scores, before = scores_and_identity(folder)
    wrong, n_changed = [], 0
    for name, value in fields.items():
        for other in others(value):
            (folder / "config.json").write_text(json.dumps(fields | {name: other}))
            try:
                found, after = scores_and_identity(folder)
            except (ValueError, OSError):
                continue
            changed = np.abs(found - scores).max() > 1e-6
            n_changed += changed
            if changed != (after != before) and name not in WITHOUT_EFFECT:
                wrong.append((name, value, other, changed))
    assert wrong == [] and n_changed > 2
