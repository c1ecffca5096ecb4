"""``rerank``: runs and tables are reranked as the ranker itself ranks them."""

import io
import json
import os
import sys

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, HierarchicalRanker, SequentialReranker
from pyterrier_cascade.cli import candidates, data
from pyterrier_cascade.cli.main import main
from tests import tiny
from tests.cli.lists import CANDIDATES, questions, run_of, table, tsv, written

GIVEN = CANDIDATES.drop(columns="label")


def of_run(text: str) -> list[tuple]:
    rows = [line.split(" ") for line in text.splitlines()]
    assert all(len(row) == 6 and (row[1], row[5]) == ("Q0", "pyterrier_cascade") for row in rows)
    return [(row[0], row[2], int(row[3]), float(row[4])) for row in rows]


def of_frame(results: pd.DataFrame) -> list[tuple]:
    return list(results[["qid", "docno", "rank", "score"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("docs", ["docs", "jsonl"])
@pytest.mark.parametrize("run", ["run", "run_gz"])
def test_a_run(cli, tiny_bert, lists, run, docs):
    files = vars(lists)
    done = cli("rerank", tiny_bert, "--run", files[run], "--topics", lists.topics, "--docs", files[docs])
    assert done.code == 0 and of_run(done.out) == of_frame(CrossEncoder.from_pretrained(tiny_bert)(GIVEN))
    assert "reranking: 100%" in done.err and f"{len(GIVEN)}/{len(GIVEN)}" in done.err


def test_a_table(cli, cascade, lists):
    """The folder says that it holds a cascade, whose settings are on the command line."""
    argv = ["--candidates", lists.candidates, "--with", "alpha=0.6,0.4", "--with", "rounding=nearest", "--quiet"]
    expected = Cascade.from_pretrained(cascade, alpha=(0.6, 0.4), rounding="nearest")(GIVEN.drop(columns="rank"))
    done = cli("rerank", cascade, *argv)
    assert (done.code, done.err) == (0, "") and of_run(done.out) == of_frame(expected)
    done = cli("rerank", cascade, *argv, "--format", "tsv")
    columns = ["qid", "docno", "rank", "score", "exit_layer"]
    assert table(done.out) == expected[columns].to_dict("records")
    assert {row["exit_layer"] for row in table(done.out)} == {1, 2, 3}


def test_other_kinds(cli, refused, encoder, dcbert, hierarchical, lists, tmp_path):
    rankers = {dcbert: DCBERT.from_pretrained(dcbert), hierarchical: HierarchicalRanker.from_pretrained(hierarchical)}
    sequential = SequentialReranker.from_pretrained(encoder, layers=[1, 2])
    with pytest.warns(UserWarning, match="is fresh"):
        sequential.save_pretrained(str(tmp_path))
        for folder, ranker in {**rankers, str(tmp_path): sequential}.items():
            argv = ["--candidates", lists.candidates, "--quiet"]
            expected = of_frame(ranker(GIVEN.drop(columns="rank")))
            assert of_run(cli("rerank", folder, *argv).out) == expected
    assert cli("rerank", dcbert, *argv, "--format", "tsv").lines[0] == "qid\tdocno\trank\tscore"
    # The weights decide the scheme.
    assert refused("rerank", hierarchical, *argv[:2], "--with", "scheme=RI").startswith("--with has no 'scheme'; there")


def test_memory_is_bounded(cli, tiny_bert, lists, monkeypatch):
    """The output does not depend on the number of queries that are read at a time."""
    argv = ["rerank", tiny_bert, "--candidates", lists.candidates, "--quiet"]
    whole, sizes, transform = of_run(cli(*argv).out), [], CrossEncoder.transform

    def watch(self, frame):
        sizes.append(len(frame))
        return transform(self, frame)

    monkeypatch.setattr(CrossEncoder, "transform", watch)
    monkeypatch.setattr(candidates, "ROWS", 7)
    found = of_run(cli(*argv).out)
    assert sizes == [10, 10, 10]
    assert [row[:3] for row in found] == [row[:3] for row in whole]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in whole], abs=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")
def test_nobody_reads_on(tiny_bert, lists, monkeypatch):
    """The command computes nothing more when the reader of a pipe has gone."""
    scored, transform = [], CrossEncoder.transform
    monkeypatch.setattr(CrossEncoder, "transform", lambda self, frame: scored.append(1) or transform(self, frame))
    monkeypatch.setattr(candidates, "ROWS", 1)
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["rerank", tiny_bert, "--candidates", str(lists.candidates), "--quiet"]) == 141
    assert len(scored) == 1


def test_standard_input(cli, tiny_bert, lists, monkeypatch):
    expected = cli("rerank", tiny_bert, "--candidates", lists.candidates).out
    with open(lists.candidates, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        done = cli("rerank", tiny_bert, "--candidates", "-")
    assert done.out == expected and "30 candidates" in done.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b""))))
    empty = cli("rerank", tiny_bert, "--run", "-", "--topics", lists.topics, "--docs", lists.docs, "--quiet")
    assert (empty.code, empty.out, empty.err) == (0, "", "")


LAST_ROWS = {
    "score": ("q\twhat\td\ttext\tmuch", "line 32: score 'much' is not a number"),
    "field": ("q\twhat\td", "line 32: 3 fields with tabs between, but the header has 5"),
    "again": ("q1-0é\twhat\td\ttext\t1", "line 32: query 'q1-0é' comes again after others"),
    "name": ("q\twhat\ttwo words\ttext\t1", "a TREC run cannot hold qid 'q' with docno 'two words'"),
}


@pytest.mark.parametrize("way", ["file", "stdin"])
@pytest.mark.parametrize(("row", "message"), LAST_ROWS.values(), ids=LAST_ROWS)
def test_a_bad_last_row_leaves_nothing_written(refused, tiny_bert, tmp_path, monkeypatch, way, row, message):
    """The whole input is checked before the first result is written, and before anything is scored."""
    monkeypatch.setattr(candidates, "ROWS", 7)
    monkeypatch.setattr(CrossEncoder, "transform", None)
    file = tsv(tmp_path / "table", GIVEN[["qid", "query", "docno", "text", "score"]])
    file.write_text(file.read_text(encoding="utf-8") + row + "\n", encoding="utf-8")
    with open(file, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert message in refused("rerank", tiny_bert, "--candidates", file if way == "file" else "-")


def test_a_last_row_of_a_run_without_text_leaves_nothing_written(refused, dcbert, tiny_bert, lists, tmp_path):
    run = written(tmp_path / "run", run_of(GIVEN) + "q1-5é Q0 unknown 9 0.1 bm25\n")
    argv = ["--run", run, "--topics", lists.topics]
    assert "lacks 1 of the run's documents: 'unknown'" in refused("rerank", tiny_bert, *argv, "--docs", lists.docs)
    DCBERT.from_pretrained(dcbert).encode(GIVEN[["docno", "text"]].to_dict("records"), tmp_path / "cache")
    found = refused("rerank", dcbert, "--cache", tmp_path / "cache", *argv)
    assert "1 of 31 candidates are not in DocumentCache" in found


def test_a_data_set(cli, cascade, tmp_path):
    """A data set gives the queries and the texts of a run."""
    given = pt.get_dataset("as2:facts/dev").get_candidates().query("qid <= 'dev-003'")
    ranker = Cascade.from_pretrained(cascade)
    rows = given.assign(rank=given.groupby("qid").cumcount()).assign(score=lambda frame: -frame["rank"])
    run = written(tmp_path / "run", run_of(rows))
    found = of_run(cli("rerank", cascade, "--run", run, "--dataset", "as2:facts/dev").out)
    assert found == of_frame(ranker(rows)) and len(found) > 20
    # The queries come from a file, the texts from the data set.
    topics = tsv(tmp_path / "topics", rows.assign(query="what ship")[["qid", "query"]].drop_duplicates(), header=False)
    found = of_run(cli("rerank", cascade, "--run", run, "--topics", topics, "--dataset", "as2:facts/dev").out)
    assert found == of_frame(ranker(rows.assign(query="what ship")))


def test_own_lists_of_a_data_set(cli, tiny_bert, monkeypatch):
    monkeypatch.setattr(data, "dataset", lambda name, folder: type("Own", (), {"get_candidates": lambda self: GIVEN})())
    expected = CrossEncoder.from_pretrained(tiny_bert)(GIVEN)
    assert of_run(cli("rerank", tiny_bert, "--dataset", "as2:wikiqa/test").out) == of_frame(expected)


def test_from_a_cache_no_text_is_needed(cli, refused, dcbert, lists, tmp_path):
    cache = DCBERT.from_pretrained(dcbert).encode(GIVEN[["docno", "text"]].to_dict("records"), tmp_path / "cache")
    argv = ["rerank", dcbert, "--cache", tmp_path / "cache", "--topics", lists.topics]
    for settings in ({}, {"interaction": "late"}):
        given = [f"--with={name}={value}" for name, value in settings.items()]
        found = of_run(cli(*argv, "--run", lists.run, *given).out)
        assert found == of_frame(cache.reranker(**settings)(GIVEN.drop(columns="text")))
    more = pd.concat([GIVEN, questions(1, 2)])
    run = written(tmp_path / "more.run", run_of(more))
    topics = tsv(tmp_path / "topics", more[["qid", "query"]].drop_duplicates(), header=False)
    argv = ["rerank", dcbert, "--cache", tmp_path / "cache", "--run", run, "--topics", topics]
    assert "5 of 35 candidates are not in DocumentCache" in refused(*argv)
    done = cli(*argv, "--with", "missing=drop", "--quiet")
    assert len(of_run(done.out)) == 30
    assert done.err.startswith("pyterrier_cascade: warning: 5 of 35 candidates are not in DocumentCache")
    docs = tsv(tmp_path / "docs", more[["docno", "text"]], header=False)
    assert len(of_run(cli(*argv, "--with", "missing=encode", "--docs", docs).out)) == 35


def test_a_bare_encoder_has_no_head(cli, refused, encoder, lists):
    argv = ["rerank", encoder, "--candidates", lists.candidates]
    assert "is an encoder without a head" in refused(*argv) and "--kind dcbert" in refused(*argv)
    late = cli(*argv, "--kind", "dcbert", "--with", "interaction=late", "--quiet")
    expected = DCBERT.from_pretrained(encoder, interaction="late")(GIVEN.drop(columns="rank"))
    assert (late.err, of_run(late.out)) == ("", of_frame(expected))


def test_another_field(cli, tiny_bert, tmp_path):
    file = tsv(tmp_path / "table", GIVEN.rename(columns={"text": "body"}))
    found = cli("rerank", tiny_bert, "--candidates", file, "--with", "text_field=body")
    assert of_run(found.out) == of_frame(CrossEncoder.from_pretrained(tiny_bert)(GIVEN.drop(columns="rank")))


def test_half_a_surrogate_pair(cli, tiny_bert, lists, tmp_path):
    docs = [
        {"docno": docno, "text": f"{text} \ud83d"}
        for docno, text in GIVEN[["docno", "text"]].drop_duplicates().to_numpy()
    ]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in docs))
    argv = ["rerank", tiny_bert, "--run", lists.run, "--topics", lists.topics, "--docs", tmp_path / "docs.jsonl"]
    done = cli(*argv)
    assert done.code == 0, done.err
    found = of_run(done.out)
    given = GIVEN.assign(text=pd.Series([text + " \ud83d" for text in GIVEN["text"]], dtype=object))
    assert found == of_frame(CrossEncoder.from_pretrained(tiny_bert)(given.drop(columns="rank")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--topics", "{topics}", "--docs", "{few_docs}"],
            "{few_docs} lacks 2 of the run's documents: 'd1-0-0'",
        ),
        (["--topics", "{few_topics}", "--docs", "{docs}"], "{few_topics} lacks 1 of the run's queries: 'q1-0é'; add"),
        (["--dataset", "as2:facts/dev"], "as2:facts/dev lacks 6 of the run's queries: 'q1-0é', 'q1-1é'"),
        (["--topics", "{topics}", "--dataset", "as2:facts/dev"], "as2:facts/dev lacks documents of the run: 30 docno"),
    ],
)
def test_missing_names_are_listed(refused, tiny_bert, lists, tmp_path, given, message):
    few_docs = tsv(tmp_path / "docs", GIVEN[["docno", "text"]].iloc[2:], header=False)
    few_topics = tsv(tmp_path / "topics", GIVEN[["qid", "query"]].drop_duplicates().iloc[1:], header=False)
    files = {**vars(lists), "few_docs": few_docs, "few_topics": few_topics}
    found = refused("rerank", tiny_bert, "--run", lists.run, *(one.format(**files) for one in given))
    assert found.startswith(message.format(**files))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no candidates; give --run, --candidates, or a --dataset that has lists of them"),
        (["--run", "{run}"], "a run has no queries; give --topics, or the --dataset that it was made for"),
        (["--run", "{run}", "--topics", "{topics}"], "a run has no texts; give --docs, or the --dataset that"),
        (
            ["--run", "nowhere.run", "--topics", "{topics}", "--docs", "{docs}"],
            "nowhere.run: No such file or directory",
        ),
        (["--candidates", "{candidates}", "--docs", "{docs}"], "--candidates brings its own queries and texts; leave"),
        (["--topics", "{topics}"], "--topics and --docs belong to a --run; give one"),
        (["--run", "-", "--topics", "-", "--docs", "x"], "only one file can be standard input"),
        (["--candidates", "{run}"], "{run}, line 1: the header names no column qid, query, docno, text; give"),
        (["--candidates", "{candidates}", "--with", "alpha=0.4"], "--with has no 'alpha'; there are dense, device"),
        (["--candidates", "{candidates}", "--with", "precision=fp8"], "precision must be one of"),
        (["--candidates", "{candidates}", "--tag", "a b"], "--tag 'a b': give one word"),
        (["--candidates", "{candidates}", "--cache", "x"], "a document cache needs a DC-BERT, but"),
        (["--dataset", "as2:wikiqua/test"], "Dataset 'as2:wikiqua/test' not found in provider 'as2'. as2 has no"),
        (["--dataset", "as2:facts/test", "--folder", "."], "as2:facts/test reads no files from a folder; leave"),
        (["--dataset", "as2:wikiqa/test", "--folder", "nowhere"], "folder 'nowhere' does not exist"),
    ],
)
def test_errors(refused, cascade, tiny_bert, lists, given, message):
    model = cascade if "--cache" in given else tiny_bert
    found = refused("rerank", model, *(one.format(**vars(lists)) for one in given))
    assert found.startswith(message.format(**vars(lists)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./nowhere", "there is no folder './nowhere'"),
        ("{empty}", "'{empty}' holds no model: it has no config.json"),
        ("no/where", "'no/where' is neither a folder nor a model on the Hub"),
    ],
)
def test_folders_without_a_model(refused, lists, tmp_path, source, message):
    found = refused("rerank", source.format(empty=tmp_path), "--candidates", lists.candidates)
    assert found.startswith(message.format(empty=tmp_path))


def test_an_untrained_ranker_is_warned_about(cli, encoder, lists):
    done = cli("rerank", encoder, "--kind", "crossencoder", "--candidates", lists.candidates, "--quiet")
    assert done.code == 0 and len(done.lines) == len(GIVEN)
    assert done.err.startswith("pyterrier_cascade: warning: the head of") and done.err.count("\n") == 1


def test_a_table_made_by_others(cli, tiny_bert, tmp_path):
    """Quotation marks are ordinary characters, unknown columns are left out, and only tabs separate fields."""
    given = GIVEN.assign(text='say "it"\u2028 now', extra="x")
    file = tsv(tmp_path / "table.tsv.gz", given)
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path / "bert", seed=3))
    found = of_run(cli("rerank", ranker.model.source, "--candidates", file).out)
    assert found == of_frame(ranker(given.drop(columns="rank")))
