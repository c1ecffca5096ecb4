# ruff: noqa: RUF001 (phonetic letters in a real sentence)
import json
from collections import Counter

import pytest

from pyterrier_cascade.datasets.asnq import NaturalQuestions
from pyterrier_cascade.datasets.asnq.natural_questions import question_page
from pyterrier_cascade.datasets.asnq.selection import read_question_lists
from pyterrier_cascade.text_files import parse_json
from tests.datasets.asnq.asnq_files import nq_record

# Read off the five pages by hand: how many sentences of the long answer lack the short one, the sentences of label 4
# and those of label 2. The table answers with a row, and names the same day in another table.
SAMPLE = {
    "what purpose did seasonal monsoon winds have on trade": (
        2,
        [
            "Trade winds have been used by captains of sailing ships to cross the world 's oceans for centuries , and "
            "enabled European empire expansion into the Americas and trade routes to become established across the "
            "Atlantic and Pacific oceans ."
        ],
        [],
    ),
    "where did they film high school musical two": None,
    "when is the last episode of season 8 of the walking dead": (
        52,
        ["111 12 `` The Key '' TBA TBA March 18 , 2018 ( 2018 - 03 - 18 ) TBD"],
        ["12 `` The Key '' March 18 , 2018 TBD TBD TBD TBD TBD TBD"],
    ),
    "in greek mythology who was the goddess of spring growth": (
        4,
        [
            "In Greek mythology , Persephone ( / pərˈsɛfəni / ; Greek : Περσεφόνη ) , also called Kore ( / ˈkɔːriː / ; "
            "`` the maiden '' ) , is the daughter of Zeus and Demeter and is the queen of the underworld ."
        ],
        [],
    ),
    "benefits of colonial life for single celled organisms": None,
}
ANSWERS = {
    "what purpose did seasonal monsoon winds have on trade": "enabled European empire expansion into the Americas and "
    "trade routes to become established across the Atlantic and Pacific oceans",
    "when is the last episode of season 8 of the walking dead": "March 18 , 2018",
    "in greek mythology who was the goddess of spring growth": "Persephone ( / pərˈsɛfəni / ; Greek : Περσεφόνη ) , "
    "also called Kore ( / ˈkɔːriː / ; `` the maiden '' )",
}


def labelled(record, **options):
    page = question_page("here", record, "train", **options)
    return list(zip(page.sentences, map(int, page.questions[0].labels), strict=True))


@pytest.fixture(scope="module")
def sample(shared_data):
    source = NaturalQuestions(train=[], dev=str(shared_data / "nq_sample"))
    lines = [line for number in range(3) for line in source.records(number)]
    return {record["question_text"]: record for record in (parse_json(*line) for line in lines)}


def test_sample_is_what_was_read_by_hand(sample):
    assert sample.keys() == SAMPLE.keys()


@pytest.mark.parametrize("query", SAMPLE)
def test_real_documents(sample, query):
    page = question_page("here", sample[query], "dev")
    if SAMPLE[query] is None:
        assert page is None
        return
    labels = page.questions[0].labels
    found = {n: [s for s, label in zip(page.sentences, labels, strict=True) if label == str(n)] for n in (1, 2, 3, 4)}
    n_long, positive, accidental = SAMPLE[query]
    assert (len(found[3]), found[4], found[2]) == (n_long, positive, accidental)
    # Another way to count: nowhere else on the page does the answer stand, and no word of the page is lost.
    words = [t["token"] for t in sample[query]["document_tokens"] if not t["html_token"]]
    assert " ".join(page.sentences).split() == " ".join(words).split()
    assert " ".join(words).count(ANSWERS[query]) == len(positive + accidental)
    assert page.name == page.questions[0].qid == str(sample[query]["example_id"])


def test_published_list_has_the_question_that_one_of_five_answered(sample, shared_data):
    query = "what purpose did seasonal monsoon winds have on trade"
    answered = [bool(annotation["short_answers"]) for annotation in sample[query]["annotations"]]
    assert sum(answered) == 1 and len(answered) == 5
    assert query in read_question_lists(shared_data / "asnq_questions")["dev"]


TEXT = "<P> Ada wrote it . Then Ada slept . </P> <P> So Ada said . Nobody knows . </P>"


@pytest.mark.parametrize("release", ["original", "simplified"])
def test_cells_part_no_text(release):
    """The simplified release writes an underscore before attributes."""
    record = nq_record(
        "<Table> <Tr> <Td> 2004 </Td> <Td_colspan='2'> Won it </Td> </Tr> </Table>", [(0, 10)], [[(3, 4)]]
    )
    if release == "simplified":
        record["document_tokens"][5]["token"] = "<Td_colspan='2'>"
    assert [token["token"] for token in record["document_tokens"]].count("<Td colspan='2'>") == (release == "original")
    assert [text for text, _ in labelled(record)] == ["2004 Won it"]


def test_four_labels():
    record = nq_record(TEXT, long=[(0, 10)], short=[[(1, 2)]])
    assert labelled(record) == [
        ("Ada wrote it .", 4),
        # It contains the words, but is not the annotated place (TA-10).
        ("Then Ada slept .", 3),
        ("So Ada said .", 2),
        ("Nobody knows .", 1),
    ]


def test_answer_over_two_sentences():
    record = nq_record(TEXT, long=[(0, 10)], short=[[(3, 6)]])
    assert [label for _, label in labelled(record)] == [4, 4, 1, 1]


def test_several_annotators_are_united():
    first = nq_record(TEXT, long=[(0, 10), None, (10, 19)], short=[[(1, 2)], [], []])
    assert [label for _, label in labelled(first)] == [4, 3, 3, 3]
    both = nq_record(TEXT, long=[(0, 10), (10, 19)], short=[[(1, 2)], [(15, 16), (16, 18)]])
    assert [label for _, label in labelled(both)] == [4, 3, 3, 4]


@pytest.mark.parametrize(
    "long, short",
    [([None], [[]]), ([(0, 10)], [[]]), ([None], [[(1, 2)]]), ([(0, 10)], [[(0, 1)]])],
    ids=["neither", "long only", "short only", "a short answer without a word"],
)
def test_questions_without_both_answers_are_left_out(long, short):
    assert question_page("here", nq_record(TEXT, long, short, yes_no="YES"), "train") is None


def test_rows_of_a_table_are_sentences_and_their_cells_are_not():
    text = "<Table> <Tr> <Th> Year </Th> <Td_colspan=2> 1802 </Td> </Tr> <Tr> <Td> a </Td> </Tr> </Table> end"
    record = nq_record(text, long=[(0, 13)], short=[[(6, 7)]])
    assert record["document_tokens"][5] == {"token": "<Td colspan=2>", "html_token": True}
    assert labelled(record) == [("Year 1802", 4), ("a", 3), ("end", 1)]


def test_case():
    record = nq_record("<P> Ada . </P> <P> all ada here . </P>", long=[(0, 4)], short=[[(1, 2)]])
    assert [label for _, label in labelled(record)] == [4, 1]
    assert [label for _, label in labelled(record, casefold=True)] == [4, 2]


def test_tags_inside_a_short_answer_are_no_words():
    text = "<Ul> <Li> one </Li> <Li> two </Li> </Ul> <P> say one two </P>"
    record = nq_record(text, long=[(0, 8)], short=[[(1, 7)]])
    assert labelled(record) == [("one", 4), ("two", 4), ("say one two", 2)]


def test_simplified_release():
    record = nq_record('<Tr> <Td_colspan="7"> a < b . </Td> </Tr> c', long=[(0, 8)], short=[[(4, 5)]])
    plain = {key: value for key, value in record.items() if key != "document_tokens"}
    plain["document_text"] = " ".join(token["token"].replace(" ", "_") for token in record["document_tokens"])
    record["document_tokens"][3]["html_token"] = False
    assert labelled(plain) == labelled(record) == [("a < b .", 4), ("c", 1)]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda r: r.pop("annotations"), "here: not a question of the original Natural Questions (KeyError('anno"),
        (lambda r: r.pop("document_tokens"), "here: not a question of the original Natural Questions (KeyError('docu"),
        (lambda r: r["document_tokens"].insert(0, None), "here: not a question of the original Natural Questions (Typ"),
        (lambda r: r["annotations"][0].update(long_answer=None), "here: not a question of the original Natural Ques"),
        (
            lambda r: r["annotations"][0]["short_answers"][0].update(end_token=20),
            "here: an answer spans the tokens 1 to 20, but the page has 19",
        ),
        (
            lambda r: r["annotations"][0]["short_answers"][0].update(end_token=1),
            "here: an answer spans the tokens 1 to 1, but the page has 19",
        ),
    ],
)
def test_wrong_shape(change, message):
    record = nq_record(TEXT, long=[(0, 10)], short=[[(1, 2)]])
    change(record)
    with pytest.raises(ValueError) as err:
        question_page("here", record, "train")
    assert str(err.value).startswith(message)


@pytest.mark.parametrize("line", ["[]", "3", "null"])
def test_not_even_a_record(line):
    with pytest.raises(ValueError, match="here: not a question of the original Natural Questions"):
        question_page("here", json.loads(line), "train")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError) as err:
        NaturalQuestions(train=[tmp_path / "a.jsonl"])
    assert str(err.value) == f"there is no file {tmp_path}/a.jsonl; name existing files, or a folder of *.jsonl*"
    with pytest.raises(FileNotFoundError, match=r"there is no file .*/\*.jsonl\*; name"):
        NaturalQuestions(dev=tmp_path)


def test_repeated_sentences_keep_their_places():
    record = nq_record("<P> Ada . </P> <P> Ada . </P> <P> Ada . </P>", long=[(4, 8)], short=[[(5, 6)]])
    assert Counter(label for _, label in labelled(record)) == {2: 2, 4: 1}
