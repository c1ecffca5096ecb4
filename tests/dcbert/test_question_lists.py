import numpy as np

from pyterrier_cascade import DCBertTraining
from pyterrier_cascade.dcbert.question_lists import QuestionLists, phases
from pyterrier_cascade.encoder.pairs import TokenPairs


def examples(labels, question_of, lengths, teacher=None):
    n = len(lengths)
    tokens = TokenPairs({"input_ids": np.arange(sum(lengths))}, np.array(lengths), np.arange(n), {"input_ids": 0})
    questions = TokenPairs({"input_ids": np.arange(9)}, np.array([3, 3, 3]), np.arange(3), {"input_ids": 0})
    return QuestionLists(questions, tokens, np.array(question_of), np.arange(n), np.array(labels), teacher)


def test_batches_hold_whole_questions_within_the_budget():
    given = examples([1, 0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 2, 2], [10, 20, 30, 5, 5, 5, 40, 1])
    settings = DCBertTraining(negatives=1, tokens_per_batch=60)
    for seed in range(5):
        batches = given.epoch(settings, seed)
        flat = sorted(row for batch in batches for row in batch)
        assert len(flat) == 6 and {0, 3, 7} <= set(flat)
        for batch in batches:
            groups = given.question_of[batch]
            assert (np.diff(np.flatnonzero(np.diff(groups, prepend=-1))) == 2).all()
            assert len(set(groups)) == 1 or given.documents.lengths[batch].sum() <= 60
    assert given.epoch(settings, 0) == given.epoch(settings, 0) != given.epoch(settings, 1)


def test_random_negatives_come_first():
    given = examples([1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 2, 2], [4] * 6)
    settings = DCBertTraining(frozen_epochs=2, epochs=1, negatives=1, tokens_per_batch=8, random_first=0.5)
    joined, epochs = phases(given, settings, frozen=True)
    assert len(joined.labels) > 6 and (joined.labels[6:] == 1).sum() == 3
    first, second = ([row for batch in epoch for row in batch] for epoch in epochs)
    assert min(first) >= 6 and max(second) < 6
    own = set(zip(given.question_of[::2].tolist(), given.document_of[::2].tolist(), strict=True))
    drawn = joined.labels[6:] == 0
    pairs = zip(joined.question_of[6:][drawn].tolist(), joined.document_of[6:][drawn].tolist(), strict=True)
    assert not own & set(pairs)
    assert phases(given, settings, frozen=False)[0] is given
