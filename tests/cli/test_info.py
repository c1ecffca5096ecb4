"""``info``: the descriptions of all folders that the package writes."""

import json

import pytest

from pyterrier_cascade import BM25, DCBERT, Cascade, CrossEncoder, SequentialReranker, registry
from pyterrier_cascade.datasets.asnq import NaturalQuestions, build
from tests import tiny
from tests.cli.lists import CANDIDATES
from tests.few_docs import DOCS


@pytest.fixture
def info(cli):
    """Returns the description of a folder, after a check that both forms of the output agree."""

    def run(path) -> dict:
        done = cli("info", path, "--json")
        assert (done.code, done.err) == (0, ""), done.err
        found = json.loads(done.out)
        lines = [line.split("\t") for line in cli("info", path).lines]
        assert [name for name, _ in lines] == list(found)
        assert dict(lines)["bytes"] == str(found["bytes"]) and found.pop("bytes") > 0
        return found

    return run


@pytest.fixture
def saved_rankers(tiny_bert, cascade, dcbert, hierarchical, encoder, tmp_path) -> dict[str, str]:
    SequentialReranker.from_pretrained(encoder, layers=[1, 2]).save_pretrained(str(tmp_path / "sequential"))
    one_of_each = {"CrossEncoder": tiny_bert, "Cascade": cascade, "DCBERT": dcbert, "HierarchicalRanker": hierarchical}
    return one_of_each | {"SequentialReranker": str(tmp_path / "sequential")}


def parameters(ranker) -> int:
    return sum(parameter.numel() for parameter in ranker.model.loaded.module.parameters())


def test_a_cross_encoder(info, tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert)
    assert info(tiny_bert) == {
        "kind": "crossencoder",
        "trained": True,
        "encoder": "bert",
        "layers": 2,
        "full_layers": 2,
        "width": 32,
        "heads": [2],
        "pooling": "cls",
        "tokens": 512,
        "trained_on": None,
        "parameters": parameters(ranker),
        "fingerprint": ranker.model.fingerprint,
    }


def test_a_cascade_trained_and_not(cli, info, cascade, encoder, tmp_path):
    found = info(cascade)
    assert (found["kind"], found["trained"], found["heads"], found["layers"]) == ("cascade", True, [1, 2, 3], 3)
    assert (found["pooling"], found["outputs"], found["trained_on"]["data"]) == ("mean_nocls", 2, "made up")
    assert found["fingerprint"] == Cascade.from_pretrained(cascade).model.fingerprint
    Cascade.from_pretrained(encoder, pooling="cls").save_pretrained(str(tmp_path))
    found = info(tmp_path)
    assert (found["trained"], found["pooling"], found["trained_on"]) == (False, "cls", None)
    lines = cli("info", tmp_path).lines
    assert {"trained\tno", "heads\t1, 2, 3", "trained_on\tnone"} <= set(lines)


def test_a_dc_bert_and_its_cache(info, dcbert, tmp_path):
    found, ranker = info(dcbert), DCBERT.from_pretrained(dcbert)
    assert (found["kind"], found["lower_layers"], found["joint_layers"], found["head"]) == ("dcbert", 3, 2, "late")
    assert (found["trained"], found["parameters"]) == (True, parameters(ranker))
    cache = ranker.encode(CANDIDATES[["docno", "text"]].to_dict("records"), tmp_path, shard_size=8, shards=[0, 1, 3])
    assert info(tmp_path) == {
        "kind": "document cache",
        "documents": 22,
        "entries": 22,
        "tokens": cache.n_tokens,
        "dtype": "fp16",
        "width": 32,
        "complete": False,
        "missing_shards": [2],
        "model": dcbert,
        "parts": {},
        "document_fingerprint": found["document_fingerprint"],
    }


def test_a_hierarchical_ranker(info, hierarchical):
    found = info(hierarchical)
    assert (found["kind"], found["trained"], found["scheme"], found["level"]) == ("hierarchical", True, "CA", "point")
    assert found["architecture"]["channels"] == 4 and found["words"] > 5 and found["vectors"] is None


def test_a_sequential_reranker(info, encoder, tmp_path):
    SequentialReranker.from_pretrained(encoder, layers=[1, 2]).save_pretrained(str(tmp_path))
    found = info(tmp_path)
    first = CrossEncoder.from_pretrained(str(tmp_path / "layers-01"))
    assert (found["kind"], found["trained"], found["layers"]) == ("sequential", False, [1, 2])
    assert found["parameters"] > 2 * parameters(first) and found["trained_on"] == [None, None]
    assert found["fingerprint"][0] == first.model.fingerprint and len(found["fingerprint"]) == 2


def test_a_bare_encoder(info, encoder):
    found = info(encoder)
    assert (found["kind"], found["encoder"], found["layers"], found["width"]) == ("encoder", "bert", 3, 32)
    assert "trained" not in found and len(found["fingerprint"]) == 64


def test_a_trace(info, cascade, tmp_path):
    ranker = Cascade.from_pretrained(cascade)
    ranker.trace(CANDIDATES, tmp_path)
    assert info(tmp_path) == {
        "kind": "trace",
        "questions": 6,
        "candidates": 30,
        "heads": [1, 2, 3],
        "layers": 3,
        "precision": "fp32",
        "model": repr(ranker),
        "front": None,
        "fingerprint": ranker.fingerprint(),
    }


def test_an_index(info, tmp_path):
    index = BM25.from_docs(DOCS, k1=0.9).save(tmp_path / "index")
    found = info(tmp_path / "index")
    assert (found["kind"], found["documents"], found["k1"]) == ("BM25 index", 5, 0.9)
    assert found["fingerprint"] == index.fingerprint


PARTS = {"train": 3, "dev": 2}


def natural_questions(path, n: int):
    """A file of questions whose page has a sentence with each of the four labels."""
    text = "<P> Ada wrote it . It was long . </P> <P> So Ada said . Nobody knows . </P>"
    tokens = [{"token": token, "html_token": token.startswith("<")} for token in text.split()]
    answer = {"start_token": 0, "end_token": 10}, [{"start_token": 1, "end_token": 2}]
    annotation = {"long_answer": answer[0], "short_answers": answer[1], "yes_no_answer": "NONE"}
    records = [
        {"example_id": n, "question_text": f"who wrote {n}", "document_tokens": tokens, "annotations": [annotation]}
        for n in range(n)
    ]
    path.mkdir()
    (path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_transfer_set(info, tmp_path):
    source = NaturalQuestions(**{part: str(natural_questions(tmp_path / part, n)) for part, n in PARTS.items()})
    build(source, tmp_path / "built", verbose=False)
    assert info(tmp_path / "built") == {
        "kind": "transfer set",
        "complete": True,
        "shards": 2,
        "train_questions": 3,
        "train_pairs_by_label": {"1": 3, "2": 3, "3": 3, "4": 3},
        "dev_questions": 2,
        "dev_pairs_by_label": {"1": 2, "2": 2, "3": 2, "4": 2},
    }
    (tmp_path / "built" / "manifest.json").unlink()
    assert info(tmp_path / "built") == {"kind": "transfer set", "complete": False}


def test_there_is_no_folder(refused, tmp_path):
    assert refused("info", tmp_path / "nowhere") == f"there is no folder {str(tmp_path / 'nowhere')!r}"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "'{folder}' holds nothing that this package writes: there is neither pt_meta.json"),
        ({"pt_meta.json": '{"type": "dense_index"}'}, "type=dense_index"),
        ({"pt_meta.json": "{"}, "pt_meta.json, line 1: not JSON"),
        ({"pt_meta.json": "{}", "config.json": "{}"}, "type=(unknown)"),
        ({"config.json": "{"}, "config.json, line 1: not JSON"),
    ],
)
def test_folders_of_others(refused, tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert message.format(folder=tmp_path) in refused("info", tmp_path)


def test_a_classifier_of_five_classes(refused, tmp_path):
    five = tiny.save(tmp_path / "five", outputs=5)
    assert "tells 5 classes apart; a reranker needs a head of 1 or 2 outputs" in refused("info", five)


@pytest.mark.parametrize("one", registry.RERANKERS, ids=lambda one: one.name)
def test_every_reranker_describes_itself(info, saved_rankers, one):
    """``info`` has no list of rankers: a new one that is in the registry is told by its ``describe()``."""
    found = info(saved_rankers[one.name])
    assert found["kind"] == one.command and {"trained", "trained_on", "parameters", "fingerprint"} < set(found)
