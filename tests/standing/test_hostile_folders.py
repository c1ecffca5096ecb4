"""Folders that somebody forged neither run code, nor write outside, nor read the standard input; errors name them."""

import ast
import builtins
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import pyterrier_cascade
from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, DocumentCache, HierarchicalRanker, SequentialReranker
from pyterrier_cascade.cli.info import described
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.few_docs import DOCS
from tests.hierarchical.questions import SMALL
from tests.standing.hostile import edited, files, refused, resealed, with_code

DEEP = "[" * 100_000 + "]" * 100_000
RANKERS = {"bert": CrossEncoder, "cascade": Cascade, "dcbert": DCBERT, "hierarchical": HierarchicalRanker}


def opened(ranker):
    return lambda folder: ranker.from_pretrained(folder).model.loaded


def sequential(folder):
    return [model.model.loaded for model in SequentialReranker.from_pretrained(folder).models]


USES = {
    "CrossEncoder": opened(CrossEncoder),
    "Cascade": opened(Cascade),
    "DCBERT": opened(DCBERT),
    "SequentialReranker": sequential,
    "from_cross_encoder": lambda folder: Cascade.from_cross_encoder(folder).model.loaded,
    "info": described,
}
"""The uses of a folder that may be any model of transformers."""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A saved model of each kind."""
    root = tmp_path_factory.mktemp("models")
    tiny.save(root / "bert")
    encoder = tiny.save(root / "encoder", layers=3, outputs=None)
    Cascade.from_pretrained(encoder, layers=(2, 3)).save_pretrained(str(root / "cascade"))
    dcbert = DCBERT.from_pretrained(encoder)
    dcbert.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    dcbert.save_pretrained(str(root / "dcbert"))
    HierarchicalRanker("PRI", "list", architecture=SMALL).save_pretrained(str(root / "hierarchical"))
    dcbert.encode(DOCS, root / "cache", shard_size=2)
    return root


@pytest.fixture
def forged(models, tmp_path):
    """Copies a model or the cache to a place where it can be changed."""
    return lambda name: Path(shutil.copytree(models / name, tmp_path / "forged" / name))


@pytest.fixture(autouse=True)
def eager_user(monkeypatch):
    """A user who answers "y" to every question; nothing may ask."""
    asked = []

    def answer(*words):
        asked.append(words)
        return "y"

    monkeypatch.setattr(builtins, "input", answer)
    yield
    assert asked == []


@pytest.mark.parametrize("use", USES, ids=str)
@pytest.mark.parametrize("kind", ["bert", "encoder"])
def test_code_beside_a_known_model_does_not_run(use, kind, forged, tmp_path):
    folder = with_code(forged(kind), tmp_path / "ran")
    if (use, kind) == ("from_cross_encoder", "encoder"):
        assert "is an encoder without a classifier" in refused(lambda: USES[use](folder))
    else:
        assert USES[use](folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("use", USES, ids=str)
def test_code_of_an_unknown_model_does_not_run(use, forged, tmp_path):
    folder = with_code(forged("encoder"), tmp_path / "ran", model_type="new")
    assert folder in refused(lambda: USES[use](folder)) and not (tmp_path / "ran").exists()


def test_code_that_the_user_trusts_runs(forged, tmp_path):
    """The folder would do harm: the tests above can fail."""
    folder = with_code(forged("bert"), tmp_path / "ran", model_type="new")
    with pytest.raises(ValueError, match="encoders of type 'new' cannot be run layer by layer"):
        CrossEncoder.from_pretrained(folder, trust_remote_code=True).model.loaded  # noqa: B018
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_the_command_line_reads_no_answer_from_a_pipe(forged, tmp_path):
    folder = with_code(forged("encoder"), tmp_path / "ran", model_type="new")
    command = [sys.executable, "-m", "pyterrier_cascade", "info", folder]
    done = subprocess.run(command, input="y\n" * 9, capture_output=True, text=True)
    assert done.returncode and not (tmp_path / "ran").exists() and "[y/N]" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("kind", ["bert", "cascade", "dcbert"])
def test_a_configuration_chooses_no_kernel_on_the_hub(name, kind, forged):
    """transformers would download it and run it."""
    folder = forged(kind)
    config = json.loads((folder / "config.json").read_text())
    fields = {name: "somebody/kernel"}
    edited(folder / "config.json", **fields, **({} if kind == "bert" else {"encoder": config["encoder"] | fields}))
    module = RANKERS[kind].from_pretrained(str(folder)).model.loaded.module
    found = {one.config._attn_implementation for one in module.modules() if hasattr(one, "config")}
    assert "somebody/kernel" not in found


@pytest.mark.parametrize(
    "parts",
    [
        {"trust_remote_code": True},
        {"trust_remote_code": True, "variant": "linear"},
        {"token": "secret"},
        {"variant": 5},
        {"tied": "yes"},
        {"joint_layers": True},
        {"lower_layers": 1.5},
        {"variant": None},
        [],
        ["trust_remote_code"],
        "trust_remote_code",
        None,
    ],
    ids=str,
)
def test_a_cache_names_known_parts_only(parts, forged, tmp_path):
    cache = forged("cache")
    model = with_code(forged("encoder"), tmp_path / "ran")
    resealed(cache / "pt_meta.json", parts=parts, model=model)
    message = refused(lambda: DocumentCache(cache).maker.model.loaded)
    assert message == (
        f"{str(cache / 'pt_meta.json')!r} has the parts {parts!r}; a cache may name variant (str), joint_layers (int), "
        "lower_layers (int), tied (bool), head (str) and nothing else: encode the corpus anew"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": {"variant": "other"}},
        {"parts": {"joint_layers": 0}},
        {"parts": {"joint_layers": 10**9}},
        {"model": 5},
        {"model": None},
        {"fingerprint": []},
        {"width": "32"},
        {"width": True},
        {"shard_size": 0},
        {"dtype": []},
        {"dtype": "float64"},
        {"max_length": "all"},
        {"query_length": -1},
        {"document_length": [5]},
        {"passages": {}},
        {"passages": "every"},
        {"precision": ["fp32"]},
    ],
    ids=str,
)
def test_other_fields_of_a_cache_are_checked(fields, forged, models):
    cache = forged("cache")
    encoder = {"model": str(models / "encoder")} if "parts" in fields else {}
    resealed(cache / "pt_meta.json", **encoder, **fields)
    assert refused(lambda: DocumentCache(cache).dcbert().model.loaded).count(str(cache) if not encoder else "") >= 1


def test_a_cache_that_names_a_model_with_code_does_not_run_it(forged, tmp_path):
    cache = forged("cache")
    model = with_code(forged("encoder"), tmp_path / "ran", model_type="new")
    resealed(cache / "pt_meta.json", model=model)
    assert model in refused(lambda: DocumentCache(cache).maker.model.loaded) and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../outside", "{root}/outside", "..", ".", "a/b"])
def test_a_shard_names_its_own_files_only(name, forged, tmp_path):
    cache = forged("cache")
    (tmp_path / "outside").write_bytes(b"1234")
    shard = cache / "shard-00000" / "shard.json"
    named = json.loads(shard.read_text())["files"]
    resealed(shard, files=named | {name.replace("{root}", str(tmp_path)): {"bytes": 4, "sha256": "0"}})
    for use in (lambda: DocumentCache(cache).find(["d1"]), lambda: DocumentCache(cache).verify()):
        for index in cache.glob("index-*"):
            shutil.rmtree(index)
        assert f"{str(shard)!r} does not list the shard's own files" in refused(use)


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs a system that tells links from files")
def test_links_in_a_cache_lead_nothing_outside(forged, tmp_path):
    cache, outside = forged("cache"), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    for name in (".lock", ".changing"):
        (cache / name).unlink(missing_ok=True)
        (cache / name).symlink_to(outside / name)
    for index in cache.glob("index-*"):
        shutil.rmtree(index)
    (cache / "added-00009").symlink_to(outside)
    for use in (lambda store: store.find(["d1"]), lambda store: store.delete(["d1"]), lambda store: store.compact()):
        try:
            use(DocumentCache(cache))
        except OSError as error:
            assert ".lock" in str(error) or ".changing" in str(error)
    assert files(outside) == {"kept": b"kept"}


@pytest.mark.parametrize(
    "end", [{"n_shards": 10**9}, {"n_shards": "3"}, {"n_shards": None}, {"n_documents": -1}], ids=str
)
def test_a_forged_count_of_shards_does_not_hang(end, forged):
    cache = forged("cache")
    resealed(cache / "end.json", **end)
    message = refused(lambda: DocumentCache(cache).missing)
    if end == {"n_shards": 10**9}:
        assert message == (
            f"{str(cache / 'end.json')!r} says that there are 1000000000 shards, more than the 1000000 that a cache "
            "can have; it is damaged: build the cache anew"
        )
    else:
        assert message == f"{str(cache / 'end.json')!r} is damaged: it counts neither documents nor shards"


def test_a_forged_number_of_a_shard_does_not_hang(forged):
    cache = forged("cache")
    (cache / "end.json").unlink()
    (cache / "shard-00001").rename(cache / "shard-999999999999")
    assert "999999999999 shards, more than the 1000000" in refused(lambda: DocumentCache(cache).missing)


@pytest.mark.parametrize(
    "changes",
    [{"added": 5}, {"added": ["x"]}, {"removed": None}, {"dead": [[0]]}, {"dead": [[0, "ab"]]}, {"next": "x"}],
    ids=str,
)
def test_forged_changes_are_named(changes, forged):
    cache = forged("cache")
    DocumentCache(cache).delete(["d1"])
    resealed(cache / "changes.json", **changes)
    message = refused(lambda: DocumentCache(cache).find(["d2"]))
    assert message == f"{str(cache / 'changes.json')!r} is damaged: it does not say which shards and documents changed"


CONTENTS = {"list": "[]", "deep": DEEP, "null": "null", "number": "5", "text": '"x"', "broken": "{", "empty": ""}
KINDS_OF_CONTENT = [*list(CONTENTS)[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in list(CONTENTS)[2:])]


@pytest.mark.parametrize("content", KINDS_OF_CONTENT, ids=str)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["bert", "cascade", "dcbert"])
def test_json_of_a_model_that_is_something_else(kind, name, content, forged):
    folder = forged(kind)
    (folder / name).write_text(CONTENTS[content])
    for use in (opened(RANKERS[kind]), described):
        message = refused(lambda use=use: use(str(folder)))
        assert str(folder) in message and ("again" in message or "get the file" in message), message


@pytest.mark.parametrize("content", KINDS_OF_CONTENT, ids=str)
def test_json_of_a_hierarchical_ranker_that_is_something_else(content, forged):
    folder = forged("hierarchical")
    (folder / "config.json").write_text(CONTENTS[content])
    for use in (opened(HierarchicalRanker), described):
        assert str(folder / "config.json") in refused(lambda use=use: use(str(folder)))


@pytest.mark.parametrize("content", KINDS_OF_CONTENT, ids=str)
@pytest.mark.parametrize("name", ["pt_meta.json", "end.json", "shard-00000/shard.json"])
def test_json_of_a_cache_that_is_something_else(name, content, forged):
    cache = forged("cache")
    (cache / name).write_text(CONTENTS[content])

    def use():
        store = DocumentCache(cache)
        store.missing  # noqa: B018
        store.verify()

    assert str(cache / name) in refused(use)


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": 20_000},
        {"vocab_size": 10**7},
        {"intermediate_size": 63},
        {"max_position_embeddings": 100},
        {"type_vocab_size": 9},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": "x"},
        {"num_attention_heads": 3},
        {"num_attention_heads": 0},
        {"hidden_size": None},
        {"hidden_size": -1},
        {"hidden_act": "unknown"},
        {"hidden_act": []},
        {"layer_norm_eps": "x"},
        {"pad_token_id": 10**6},
        {"id2label": []},
        {"model_type": []},
        {"model_type": "unheard-of"},
        {"full_layers": "x"},
        {"trained_on": 5},
        {"trained_on": {"questions": 1}},
    ],
    ids=str,
)
def test_a_configuration_that_is_not_of_its_weights(fields, forged):
    folder = forged("bert")
    edited(folder / "config.json", **fields)
    assert str(folder) in refused(lambda: opened(CrossEncoder)(str(folder)))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("cascade", {"layers": 5}),
        ("cascade", {"layers": ["x"]}),
        ("cascade", {"encoder": []}),
        ("cascade", {"encoder": {}}),
        ("cascade", {"encoder": {"model_type": "bert", "num_hidden_layers": 10**9}}),
        ("cascade", {"head_width": 10**9}),
        ("cascade", {"seen": 10**12}),
        ("cascade", {"certificates": [{}]}),
        ("dcbert", {"variant": "other"}),
        ("dcbert", {"joint_layers": "x"}),
        ("dcbert", {"joint_layers": 2}),
        ("dcbert", {"lower_layers": 2}),
        ("dcbert", {"tied": True}),
        ("dcbert", {"encoder": None}),
        ("hierarchical", {"scheme": []}),
        ("hierarchical", {"level": "other"}),
        ("hierarchical", {"architecture": None}),
        ("hierarchical", {"architecture": {"width": 10**9}}),
        ("hierarchical", {"architecture": {"kernels": 10**9}}),
        ("hierarchical", {"architecture": {"unknown": 1}}),
        ("hierarchical", {"trained_on": 5}),
    ],
    ids=str,
)
def test_a_configuration_of_ours_that_is_not_of_its_weights(kind, fields, forged):
    folder = forged(kind)
    edited(folder / "config.json", **fields)
    assert str(folder) in refused(lambda: opened(RANKERS[kind])(str(folder)))


@pytest.mark.parametrize("lost", ["encoding.weight", "vectors.rest", "kernels.0.weight"])
def test_a_hierarchical_ranker_that_lost_weights(lost, forged):
    folder = forged("hierarchical")
    kept = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name != lost}
    save_file(kept, folder / "model.safetensors")
    assert str(folder) in refused(lambda: opened(HierarchicalRanker)(str(folder)))


@pytest.mark.parametrize("kind", ["bert", "cascade", "dcbert"])
def test_a_tokenizer_with_more_words_than_the_model(kind, forged):
    folder = forged(kind)
    ranker = RANKERS[kind].from_pretrained(str(folder))
    tokenizer = ranker.model.loaded.tokenizer
    n_words = len(tokenizer)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(folder)
    assert refused(lambda: opened(RANKERS[kind])(str(folder))) == (
        f"the tokenizer of {str(folder)!r} has a word of number {n_words}, 'newword', but the model has embeddings of "
        f"{n_words} words; save the tokenizer that the model was trained with, or resize the model's embeddings"
    )


def test_an_adapter_is_no_model(forged):
    folder = forged("bert")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    message = refused(lambda: opened(CrossEncoder)(str(folder)))
    assert message.startswith(f"{str(folder)!r} has an adapter (adapter_config.json) and not a whole model; merge it")


CALLS = ("from_pretrained", "from_config")


def test_every_call_of_transformers_decides_whether_code_runs():
    """``Auto...`` classes ask on the standard input where they are not told."""
    undecided = []
    for path in Path(pyterrier_cascade.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                owner = ast.unparse(node.func.value)
                decided = {keyword.arg for keyword in node.keywords} & {"trust_remote_code", None}
                if owner.rpartition(".")[2].startswith("Auto") and not decided:
                    undecided.append(f"{path.name}: {ast.unparse(node)}")
    assert undecided == []


def test_no_pickle_is_read_from_disk():
    """``torch.load`` and arrays of objects would unpickle."""
    package = Path(pyterrier_cascade.__file__).parent
    text = {path: path.read_text() for path in package.rglob("*.py")}
    assert [str(path) for path, code in text.items() if "torch.load(" in code or "allow_pickle=True" in code] == []
    loads = {str(path.relative_to(package)) for path, code in text.items() if "pickle.load" in code}
    # What the same process, or its own pool, pickled before.
    assert loads == {"ranker.py", "scale/ray.py", "cli/candidates.py"} and torch
