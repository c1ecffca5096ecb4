"""``train``: it saves the weights that the ranker's own ``fit_candidates`` makes."""

import json
from pathlib import Path

import pandas as pd
import pytest

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CascadeTraining,
    CrossEncoder,
    DCBertTraining,
    HierarchicalArchitecture,
    HierarchicalRanker,
    HierarchicalTraining,
    SequentialReranker,
    Tanda,
    Training,
)
from pyterrier_cascade.cli import data
from pyterrier_cascade.crossencoder import ranker as crossencoder
from tests.cli.lists import questions, table, tsv

COURSE = ["update", "epoch", "loss", "dev_map"]
COLUMNS = ["qid", "query", "docno", "text", "label"]
TRAIN, DEV, TRANSFER = (questions(8, seed)[COLUMNS] for seed in (2, 3, 4))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    return ["--train", tsv(folder / "train.tsv.gz", TRAIN), "--dev", tsv(folder / "dev.tsv", DEV)]


def first_columns(history: pd.DataFrame) -> list[str]:
    return ["step", *COURSE] if "step" in history else COURSE


def rows_of(history: pd.DataFrame) -> list[dict]:
    """The rows that are printed of a history: the steps of TANDA and four columns stand first."""
    names = dict.fromkeys([*first_columns(history), *history.columns])
    rows = [{name: row.get(name) for name in names} for row in history.to_dict("records")]
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows]


def assert_trained(done, ranker, output, history=None):
    """Asserts that the course is on standard output and the weights are in the folder."""
    assert done.code == 0, done.err
    history = ranker.history if history is None else history
    found = table(done.out)
    assert found == rows_of(history) and done.lines[0].startswith("\t".join(first_columns(history)))
    assert any(row["dev_map"] for row in found)
    assert type(ranker).from_pretrained(str(output)).model.fingerprint == ranker.model.fingerprint


def test_a_cross_encoder(cli, tiny_bert, files, tmp_path):
    settings = ["--set", "learning_rate=1e-3", "--set", "epochs=2", "--set=tokens_per_batch=99", "--with=max_length=20"]
    done = cli("train", "crossencoder", "--model", tiny_bert, *files, *settings, "--output", tmp_path / "new" / "one")
    training = Training(learning_rate=1e-3, epochs=2, tokens_per_batch=99)
    ranker = CrossEncoder.from_pretrained(tiny_bert, max_length=20, training=training).fit_candidates(TRAIN, DEV)
    assert_trained(done, ranker, tmp_path / "new" / "one")
    assert "training: 100%" in done.err and any(row["loss"] for row in table(done.out))


def test_a_cascade(cli, encoder, files, tmp_path):
    settings = ["--with", "layers=1,3", "--with", "pooling=mean", "--set", "heads=sampled", "--set", "epochs=1"]
    done = cli("train", "cascade", "--model", encoder, *files, *settings, "--output", tmp_path / "out", "--quiet")
    training = CascadeTraining(heads="sampled", epochs=1)
    ranker = Cascade.from_pretrained(encoder, layers=(1, 3), pooling="mean", training=training)
    assert_trained(done, ranker.fit_candidates(TRAIN, DEV), tmp_path / "out")
    assert done.err == ""
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["trained_on"]["data"] == "train.tsv.gz" and config["layers"] == [1, 3]


@pytest.mark.filterwarnings("ignore:.* did not learn")
def test_a_dc_bert(cli, encoder, files, tmp_path):
    """The lists may have the scores of a teacher."""
    train = TRAIN.assign(teacher=TRAIN["label"] * 2.5)
    argv = ["--train", tsv(tmp_path / "train", train), *files[2:], "--with", "joint_layers=2", "--set", "epochs=0"]
    done = cli("train", "dcbert", "--model", encoder, *argv, "--output", tmp_path / "out", "--quiet")
    ranker = DCBERT.from_pretrained(encoder, joint_layers=2, training=DCBertTraining(epochs=0))
    assert_trained(done, ranker.fit_candidates(train, DEV), tmp_path / "out")


def test_a_hierarchical_ranker(cli, files, tmp_path):
    """It is trained fresh, with the sizes of its architecture among the settings, or from a saved one."""
    sizes = {"embedding_width": 8, "width": 8, "channels": 4, "kernels": 2, "hidden": 8, "k_max": (3, None)}
    given = [f"--with={name}={value}" for name, value in (sizes | {"k_max": "3,none"}).items()]
    argv = ["train", "hierarchical", *files, "--set", "epochs=2", "--quiet"]
    done = cli(*argv, *given, "--with", "scheme=CA", "--with", "level=pair", "--output", tmp_path / "fresh")
    training = HierarchicalTraining(epochs=2)
    fresh = HierarchicalRanker("CA", "pair", architecture=HierarchicalArchitecture(**sizes), training=training)
    assert_trained(done, fresh.fit_candidates(TRAIN, DEV), tmp_path / "fresh")
    done = cli(*argv, "--model", tmp_path / "fresh", "--output", tmp_path / "more")
    more = HierarchicalRanker.from_pretrained(str(tmp_path / "fresh"), training=training)
    assert_trained(done, more.fit_candidates(TRAIN, DEV), tmp_path / "more")


def test_without_development_questions(cli, tiny_bert, files, tmp_path):
    done = cli(
        "train", "crossencoder", "--model", tiny_bert, *files[:2], "--output", tmp_path, "--set=tokens_per_batch=99"
    )
    found = table(done.out)
    assert done.code == 0 and all(row["loss"] and row["dev_map"] is None for row in found) and found


def test_transfer_makes_it_tanda(cli, refused, tiny_bert, files, tmp_path):
    transfer = tsv(tmp_path / "transfer.tsv", TRANSFER)
    argv = ["train", "crossencoder", "--model", tiny_bert, *files, "--transfer", transfer]
    settings = {"transfer_rate": 1e-3, "adapt_rate": 1e-4, "transfer_epochs": 2, "adapt_epochs": 1}
    given = [f"--set={name}={value}" for name, value in {**settings, "tokens_per_batch": 300}.items()]
    done = cli(*argv, *given, "--output", tmp_path / "out", "--quiet")
    steps = {"tokens_per_batch": 300}
    ranker = CrossEncoder.from_pretrained(tiny_bert)
    tanda = Tanda(ranker, TRANSFER, **settings, transfer_training=steps, adapt_training=steps)
    tanda.fit_candidates(TRAIN, DEV)
    assert_trained(done, tanda.ranker, tmp_path / "out", tanda.history)
    assert [row["step"] for row in table(done.out)] == ["transfer"] * 2 + ["adapt"]
    message = refused(*argv, "--set", "learning_rate=1e-3", "--output", tmp_path / "no")
    assert (
        message.startswith("--set has no 'learning_rate'")
        and "there are accumulate, adapt_epochs, adapt_rate" in message
    )
    message = refused(*argv[:-1], "as3", "--output", tmp_path / "no")
    assert message == "--transfer 'as3' is neither a file nor a data set, such as as2:asnq"
    assert not (tmp_path / "no").exists()


def test_data_sets(cli, refused, tiny_bert, tmp_path, monkeypatch):
    """The transfer set must not ask the test questions of the data set."""
    asked, frames = [], {"train": TRAIN, "dev": DEV, "test": DEV}

    class Set:
        def __init__(self, split):
            self.get_candidates = lambda: frames[split]
            self.get_topics = lambda: frames[split]

    def dataset(name, folder=None):
        asked.append((name, folder))
        return Set(name.rsplit("/")[-1])

    monkeypatch.setattr(data, "dataset", dataset)
    argv = ["train", "crossencoder", "--model", tiny_bert, "--data", "as2:wikiqa", "--folder", "here"]
    assert cli(*argv, "--set", "epochs=1", "--output", tmp_path / "out").code == 0
    assert asked == [("as2:wikiqa/train", "here"), ("as2:wikiqa/dev", "here")]
    argv += ["--transfer", "as2:asnq-like", "--transfer-folder", "there", "--output", tmp_path / "no"]
    assert refused(*argv).startswith("the transfer set asks 2 of the 2 test questions")
    assert set(asked[2:]) >= {("as2:asnq-like/train", "there"), ("as2:wikiqa/test", "here")}


def test_an_interrupted_training_goes_on(cli, tiny_bert, files, tmp_path, monkeypatch):
    settings = ["--set=epochs=2", "--set=save_every=1", "--set=tokens_per_batch=200", "--set=learning_rate=1e-3"]
    argv = ["train", "crossencoder", "--model", tiny_bert, *files, *settings, "--quiet"]
    steps, loss, stop = [], crossencoder.cross_entropy, 5

    def count(logits, labels):
        steps.append(1)
        if len(steps) == stop:
            raise KeyboardInterrupt
        return loss(logits, labels)

    monkeypatch.setattr(crossencoder, "cross_entropy", count)
    ours = [*argv, f"--set=folder={tmp_path / 'run'}", "--output", tmp_path / "out"]
    stopped = cli(*ours)
    assert (stopped.code, stopped.out, stopped.err) == (130, "", "pyterrier_cascade: interrupted\n")
    assert not (tmp_path / "out" / "config.json").exists()
    first, steps[:], stop = len(steps), [], 0
    again = cli(*ours)
    went_on, steps[:] = len(steps), []
    straight = cli(*argv, "--output", tmp_path / "straight")
    assert again.code == straight.code == 0
    assert went_on == len(steps) - (first - 1) < len(steps)
    folders = (tmp_path / "out", tmp_path / "straight")
    one, other = (CrossEncoder.from_pretrained(str(folder)).model.fingerprint for folder in folders)
    assert one == other


def test_nothing_is_overwritten(refused, tiny_bert, files, tmp_path):
    before = Path(tiny_bert, "config.json").read_bytes()
    argv = ["train", "crossencoder", "--model", tiny_bert, *files]
    message = f"{tiny_bert!r} holds a model already; give another --output, or delete it"
    assert refused(*argv, "--output", tiny_bert) == message
    (tmp_path / "file").touch()
    assert refused(*argv, "--output", tmp_path / "file") == f"{tmp_path / 'file'}: File exists"
    assert Path(tiny_bert, "config.json").read_bytes() == before


@pytest.mark.parametrize("name", ["alpha=0.5", "exited=drop", "plan=1,3"])
def test_a_policy_is_no_setting_of_a_training(refused, encoder, files, tmp_path, name):
    said = refused("train", "cascade", "--model", encoder, *files, "--output", tmp_path / "out", "--with", name)
    assert said.startswith(f"--with has no {name.partition('=')[0]!r}; there are deadline_ms, device")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--set", "lr=1"], "--set has no 'lr'; there are accumulate, epochs, evaluations_per_epoch, folder"),
        (["--set", "epoch=1"], "--set has no 'epoch' (did you mean 'epochs'?); there are accumulate"),
        (["--set", "relevant_from=0"], "relevant_from must be a whole number and at least 1, not 0"),
        (["--set", "epochs=two"], "--set epochs=two: give a whole number"),
        (["--set", "epochs=0"], "epochs must be a whole number and at least 1, not 0"),
        (["--with", "alpha=0.4"], "--with has no 'alpha'; there are dense, device"),
        (["--dev", "nowhere.tsv"], "nowhere.tsv: No such file or directory"),
    ],
)
def test_errors(refused, tiny_bert, files, tmp_path, given, message):
    argv = ["train", "crossencoder", "--model", tiny_bert, *files, "--output", tmp_path / "out", *given]
    assert refused(*argv).startswith(message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["crossencoder", "--model", "{bert}", "--train", "{labels}"], "{labels}, line 2: label 'no' is not a whole"),
        (["cascade", "--train", "{labels}"], "a cascade is trained from an encoder; give --model"),
        (["sequential", "--train", "{labels}"], "a sequential is trained from an encoder; give --model"),
        (["crossencoder", "--model", "{bert}", "--data", "as2:facts", "--dev", "{labels}"], "--dev goes with --train;"),
        (["bm25", "--train", "{labels}"], "argument KIND: invalid choice: 'bm25'"),
        (
            ["crossencoder", "--model", "{dcbert}", "--train", "{train}"],
            "'{dcbert}' holds a DCBERT, not a CrossEncoder",
        ),
    ],
)
def test_errors_of_what_is_given(refused, tiny_bert, dcbert, tmp_path, argv, message):
    files = {"labels": tsv(tmp_path / "labels", TRAIN.assign(label="no")), "train": tsv(tmp_path / "train", TRAIN)}
    known = {name: str(one) for name, one in {**files, "bert": tiny_bert, "dcbert": dcbert}.items()}
    found = refused("train", *(one.format(**known) for one in argv), "--output", tmp_path / "out")
    assert found.startswith(message.format(**known))


@pytest.mark.parametrize("transfer", [False, True])
def test_graded_labels(cli, tiny_bert, files, tmp_path, transfer):
    """With ``relevant_from=2`` the grades 2 and 3 are relevant, and 0 and 1 are not, in every step."""
    grades = [frame.assign(label=frame["label"] * 2 + frame.index % 2) for frame in (TRAIN, DEV, TRANSFER)]
    graded = [tsv(tmp_path / f"{number}.tsv", frame) for number, frame in enumerate(grades)]
    plain = [*files, *(["--transfer", tsv(tmp_path / "transfer.tsv", TRANSFER)] if transfer else [])]
    given = ["--train", graded[0], "--dev", graded[1], *(["--transfer", graded[2]] if transfer else [])]
    argv = ["train", "crossencoder", "--model", tiny_bert, "--set=tokens_per_batch=200", "--quiet"]
    argv += ["--set=transfer_epochs=1", "--set=adapt_epochs=1"] if transfer else ["--set=epochs=1"]
    expected = cli(*argv, *plain, "--output", tmp_path / "plain")
    found = cli(*argv, *given, "--set=relevant_from=2", "--output", tmp_path / "graded")
    assert found.code == 0, found.err
    assert found.out == expected.out and len(found.lines) > 1


def test_a_sequential_reranker(cli, refused, encoder, files, tmp_path):
    argv = ["train", "sequential", "--model", encoder, *files, "--set", "epochs=1", "--with", "layers=1,2", "--quiet"]
    done = cli(*argv, "--output", tmp_path / "out")
    ranker = SequentialReranker.from_pretrained(encoder, layers=(1, 2)).with_training(epochs=1)
    ranker.fit_candidates(TRAIN, DEV)
    assert done.code == 0, done.err
    assert table(done.out) == rows_of(ranker.history) and {row["layers"] for row in table(done.out)} == {1, 2}
    found = [model.model.fingerprint for model in SequentialReranker.from_pretrained(str(tmp_path / "out")).models]
    assert found == [model.model.fingerprint for model in ranker.models]
    assert "holds a model already" in refused(*argv[:-1], "--output", tmp_path / "out")
