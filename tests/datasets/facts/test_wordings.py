import pytest

from pyterrier_cascade.datasets.facts.wordings import CHATTER, RELATIONS

ASKED = [name for name, relation in RELATIONS.items() if relation.questions]


def test_number_of_relations_that_are_asked():
    assert len(ASKED) == 14


@pytest.mark.parametrize("name", RELATIONS)
def test_each_relation_has_enough_wordings(name):
    relation = RELATIONS[name]
    asked = relation.questions + relation.held_out_questions
    stated = relation.statements + relation.held_out_statements
    assert (len(set(asked)) >= 6 and len(relation.held_out_questions) >= 2) or name not in ASKED
    assert len(set(stated)) >= 8 and len(relation.held_out_statements) >= 3
    assert relation.kind in CHATTER
