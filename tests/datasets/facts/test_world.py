from collections import Counter

from pyterrier_cascade.datasets.facts.dice import Dice
from pyterrier_cascade.datasets.facts.world import N_ENTITIES, build_world, draw_other


def test_every_seed_has_a_world():
    """Some have small families of species or instruments."""
    for seed in range(60):
        world, _ = build_world(Dice(seed))
        counts = {split: Counter(entity.kind for entity in entities) for split, entities in world.items()}
        assert all(set(counts[split].values()) == {n} for split, n in N_ENTITIES.items()), seed


def test_dates_are_plausible():
    dice = Dice(3)
    world, values = build_world(dice)
    for entities in world.values():
        for entity in entities:
            if entity.kind == "ship":
                assert int(entity.facts["ship_launch"]) + 15 <= int(entity.facts["ship_sinking"])
                other = draw_other("ship_launch", entity.facts, [], values, dice)
                assert int(entity.facts["ship_launch"]) < int(other) < int(entity.facts["ship_sinking"])
