import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import bm25s
import numpy as np
import pandas as pd
import pytest

from pyterrier_cascade.datasets.facts import generator
from pyterrier_cascade.datasets.facts.wordings import RELATIONS

SPLITS = ("train", "dev", "test")
ASKED = [name for name, relation in RELATIONS.items() if relation.questions]
CONTENT = "044b56d0b70f6ba7db5948bf6341cc49d7efa24252df39ee8ba94d75041cf3ac"


@pytest.fixture(scope="module")
def data():
    return generator.generate()


def content(data) -> str:
    digest = hashlib.sha256()
    for frame in (*data.pairs.values(), *data.questions.values(), data.corpus):
        for row in (tuple(frame.columns), *frame.itertuples(index=False, name=None)):
            digest.update(("\t".join(map(str, row)) + "\n").encode())
    return digest.hexdigest()


def pattern(template: str) -> re.Pattern:
    """Finds the sentences that the template gives, whatever is in its slots."""
    parts = re.split(r"(\{\w+\}|\[[^]]*\])", template)
    for i, part in enumerate(parts):
        if part.startswith("["):
            parts[i] = f"(?:{'|'.join(map(re.escape, part[1:-1].split('|')))})"
        else:
            parts[i] = ".+" if part.startswith("{") else re.escape(part)
    return re.compile("".join(parts) + "$", re.IGNORECASE)


def matches(templates, texts) -> list[str]:
    return [text for template in templates for text in filter(pattern(template).search, texts)]


def test_the_content_is_pinned(data):
    assert content(data) == CONTENT


def test_the_content_does_not_depend_on_the_hash_seed(data):
    code = "from tests.datasets.facts import test_generator as t; print(t.content(t.generator.generate()))"
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == content(data)


def test_another_seed_gives_other_data_of_the_same_shape(data):
    other = generator.generate(7)
    assert content(other) != content(data)
    assert {split: pairs.qid.nunique() for split, pairs in other.pairs.items()} == generator.N_QUESTIONS
    assert generator.generate() is data


def test_a_seed_is_a_whole_number_from_0():
    with pytest.raises(ValueError, match="seed=-1; give a whole number from 0"):
        generator.generate(-1)


def test_counts(data):
    assert {split: pairs.qid.nunique() for split, pairs in data.pairs.items()} == {
        "train": 600,
        "dev": 100,
        "test": 200,
    }
    assert 5_000 <= len(data.corpus) <= 10_000
    for split in SPLITS:
        pairs = data.pairs[split]
        assert list(pairs.columns) == ["qid", "query", "docno", "text", "label", "relation"]
        sizes = pairs.groupby("qid").size()
        assert sizes.between(20, 40).all()
        assert sizes.nunique() > 15
        assert set(pairs.label) == {0, 1}
        assert pairs.groupby("qid").label.sum().isin([1, 2, 3]).all()
        assert set(pairs.relation) == set(ASKED)


def test_questions_and_candidates_belong_together(data):
    for split in SPLITS:
        pairs, questions = data.pairs[split], data.questions[split]
        assert list(questions.columns) == ["qid", "query", "relation", "entity", "answer"]
        keys = ["qid", "query", "relation"]
        pd.testing.assert_frame_equal(pairs[keys].drop_duplicates(ignore_index=True), questions[keys])
        assert not pairs.duplicated(["qid", "docno"]).any()


def test_candidates_are_documents_of_the_corpus(data):
    assert data.corpus.docno.is_unique
    assert data.corpus.text.is_unique
    text_of = data.corpus.set_index("docno").text
    for pairs in data.pairs.values():
        assert (pairs.docno.map(text_of) == pairs.text).all()


@pytest.mark.parametrize("name", ASKED)
def test_held_out_wordings_are_not_in_train(data, name):
    relation = RELATIONS[name]
    train = data.pairs["train"]
    assert not matches(relation.held_out_questions, train["query"].unique())
    assert not matches(relation.held_out_statements, train.text.unique())
    unseen = pd.concat([data.pairs["dev"], data.pairs["test"]])
    unseen = unseen[unseen.relation == name]
    for asked in (relation.questions, relation.held_out_questions):
        assert matches(asked, unseen["query"].unique())
    for stated in (relation.statements, relation.held_out_statements):
        assert matches(stated, unseen[unseen.label == 1].text.unique())


def test_every_wording_of_the_questions_is_used(data):
    asked = pd.concat(data.pairs.values())["query"].unique()
    for relation in RELATIONS.values():
        for template in relation.questions + relation.held_out_questions:
            assert matches([template], asked), template


def test_entities_differ_between_splits(data):
    entities = [entity for split in SPLITS for entity in data.questions[split].entity.unique()]
    assert len(entities) == len(set(entities))
    assert not [(a, b) for a in entities for b in entities if a != b and a.casefold() in b.casefold()]


def test_positives_state_the_answer_and_no_other_candidate_names_entity_and_answer(data):
    for split in SPLITS:
        rows = data.pairs[split].merge(data.questions[split][["qid", "entity", "answer"]], on="qid")
        for row in rows.itertuples():
            text = row.text.casefold()
            names_both = row.entity.casefold() in text and re.search(rf"\b{re.escape(row.answer.casefold())}\b", text)
            assert bool(row.label) == bool(names_both), f"{row.query} [{row.answer}] {row.text}"


@pytest.mark.parametrize("name", ASKED)
def test_positives_are_worded_as_statements_of_their_relation(data, name):
    relation = RELATIONS[name]
    pairs = pd.concat(data.pairs.values())
    positives = pairs[(pairs.relation == name) & (pairs.label == 1)].text.unique()
    assert set(matches(relation.statements + relation.held_out_statements, positives)) == set(positives)


def test_labels_are_complete_for_the_whole_corpus(data):
    """Every sentence of the corpus with the entity and its answer is a positive of the question."""
    corpus = data.corpus.text.str.casefold()
    for split in SPLITS:
        positives = data.pairs[split][lambda pairs: pairs.label == 1].groupby("qid").docno.agg(set)
        for row in data.questions[split].sample(60, random_state=0).itertuples():
            about = corpus[corpus.str.contains(row.entity.casefold(), regex=False)]
            answering = about[about.str.contains(rf"\b{re.escape(row.answer.casefold())}\b")]
            assert set(data.corpus.docno[answering.index]) == positives[row.qid]


def test_lists_hold_every_kind_of_distractor(data):
    for split in SPLITS:
        rows = data.pairs[split].merge(data.questions[split][["qid", "entity"]], on="qid")
        same_entity = [row.entity.casefold() in row.text.casefold() for row in rows.itertuples()]
        per_question = rows[np.array(same_entity) & (rows.label == 0)].groupby("qid").size()
        assert len(per_question) == generator.N_QUESTIONS[split] and per_question.min() >= 2
        for name, relation in RELATIONS.items():
            same = rows.relation == name if name in ASKED else True
            distractors = rows[same & (rows.label == 0)]
            assert matches(relation.statements, distractors.text.unique()), name
            assert matches(relation.traps, distractors.text.unique()), name


@pytest.mark.parametrize(
    "fault",
    [
        r'^(?!["]?[A-Z0-9])',
        r"(?<![.?])$",
        r"  | $|^ |\t|\n",
        r"[{}\[\]|<>]|\bNone\b|\bnan\b",
        r"\b[Aa] [aeiouAEIOU]",
        r"\b[Aa]n (?!hour|honest)[^aeiouAEIOU ]",
        r" [,.;:?]|,[,.]|\.\.|[^\x20-\x7e]",
        r"\b(\w+) \1\b",
        r"\b(?:the|The) (?:the|a|an)\b|\ba the\b",
    ],
)
def test_sentences_and_questions_are_clean(data, fault):
    texts = [*data.corpus.text, *(query for split in SPLITS for query in data.questions[split]["query"])]
    assert not [text for text in texts if re.search(fault, text)]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_bm25_is_misled_about_half_the_time(data, split):
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(bm25s.tokenize(data.corpus.text.tolist(), show_progress=False), show_progress=False)
    position = {docno: i for i, docno in enumerate(data.corpus.docno)}
    average_precisions = []
    for (_, query), candidates in data.pairs[split].groupby(["qid", "query"]):
        tokens = bm25s.tokenize(query, return_ids=False, show_progress=False)[0]
        scores = index.get_scores(tokens)[candidates.docno.map(position)]
        ranked = candidates.assign(score=scores).sort_values(["score", "docno"], ascending=[False, True])
        ranks = np.flatnonzero(ranked.label) + 1
        average_precisions.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    assert 0.40 <= np.mean(average_precisions) <= 0.65
