from pyterrier_cascade.datasets.docnos import hashed_docnos


def test_repeated_sentences_are_counted():
    first, other, again = hashed_docnos(["a", "b", "a"], 12)
    assert len(first) == len(other) == 12 and first != other and again == f"{first}-2"


def test_a_suffix_stands_before_the_count():
    first, again = hashed_docnos(["a", "a"], 16, "-t2")
    assert first.endswith("-t2") and again == f"{first}-2" and len(first) == 16 + 3


def test_names_do_not_depend_on_the_order():
    assert hashed_docnos(["a", "b"], 12) == hashed_docnos(["b", "a"], 12)[::-1]
