from pyterrier_cascade.datasets.facts.dice import Dice


def test_a_seed_gives_the_same_choices_everywhere():
    dice = Dice(5)
    assert [dice.below(100) for _ in range(5)] == [62, 74, 79, 94, 73]


def test_samples_and_shuffles():
    dice, items = Dice(1), list(range(10))
    assert sorted(dice.shuffle(items)) == items == list(range(10))
    assert len(set(dice.sample(items, 4))) == 4 and sorted(dice.sample(items, 20)) == items
    assert {dice.between(2, 4) for _ in range(100)} == {2, 3, 4}
    assert not dice.chance(0) and dice.chance(1) and dice.pick(items) in items
