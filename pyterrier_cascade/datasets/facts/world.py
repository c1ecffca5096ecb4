"""The invented world of ``as2:facts``: its entities, and the value of each relation for each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from pyterrier_cascade.datasets.facts.dice import Dice
from pyterrier_cascade.datasets.facts.names import (
    BOOK_TITLES,
    INSTRUMENT_NAMES,
    PLACE_NAMES,
    REGIONS,
    SHIP_NAMES,
    SPECIES_NAMES,
    VALUES,
)
from pyterrier_cascade.datasets.facts.wordings import RELATIONS, Relation

N_ENTITIES = {"train": 43, "dev": 8, "test": 15, "other": 4}
"""The number of entities of each kind; those of "other" are asked nothing and only fill the corpus."""


@dataclass(eq=False)
class Sentence:
    """A sentence about one entity.

    Args:
        text: The sentence.
        role: "fact" if it states the relation, "trap" if it only seems to state it, or "chatter".
        relation: The relation that it states or seems to state; empty for chatter.
    """

    text: str
    role: str
    relation: str


@dataclass(eq=False)
class Entity:
    """A person, place or thing of the invented world.

    Args:
        kind: Its kind, such as "ship": a key of ``CHATTER``.
        name: Its name as it stands inside a sentence: "the Salt Otter".
        family: A part of the name that entities of similar names share.
        facts: The value of each relation.
        sentences: All sentences about it.
    """

    kind: str
    name: str
    family: str
    facts: dict[str, str] = field(default_factory=dict)
    sentences: list[Sentence] = field(default_factory=list)


def build_world(dice: Dice) -> tuple[dict[str, list[Entity]], dict[str, Sequence[str]]]:
    """Returns the entities of each split, with their facts, and the values of each type of answer."""
    places = (name for name, _ in _combinations("towns", dice))
    people = _people(dice)
    families = {
        "ship": _ships_or_books(SHIP_NAMES, "the {} {}", dice),
        "book": _ships_or_books(BOOK_TITLES, '"The {} {}"', dice),
        "species": _species_or_instruments(SPECIES_NAMES, dice),
        "instrument": _species_or_instruments(INSTRUMENT_NAMES, dice),
        "person": people,
    }
    world = {}
    for split, n in N_ENTITIES.items():
        world[split] = [entity for kind in families for entity in _take(kind, families[kind], n)]
        world[split] += _around_places(places, n, dice)
    # No answer is an entity that is asked about: an entity would then be described in two ways.
    values = VALUES | {
        "person": [name for _, names in islice(people, 60) for name in names],
        "town": list(islice(places, 80)),
        "river": [name for name, _ in islice(_combinations("rivers", dice), 50)],
    }
    for entities in world.values():
        for entity in entities:
            entity.facts = _facts(entity, values, dice)
    return world, values


def _take(kind: str, families: Iterator[tuple[str, list[str]]], n: int) -> list[Entity]:
    """Returns n entities; the rest of the last family is dropped, so that no family is in two splits."""
    taken = []
    while len(taken) < n:
        family, names = next(families)
        taken += [Entity(kind, name, family) for name in names]
    return taken[:n]


def _around_places(places: Iterator[str], n: int, dice: Dice) -> list[Entity]:
    """Returns n companies, n bridges and so on: one to three of each kind are named after each place."""
    found = {kind: [] for kind in PLACE_NAMES}
    while min(map(len, found.values())) < n:
        place = next(places)
        for kind, patterns in PLACE_NAMES.items():
            names = dice.sample(patterns, dice.between(1, 3))
            found[kind] += [Entity(kind, name.format(place), place) for name in names]
    return [entity for entities in found.values() for entity in entities[:n]]


def _combinations(part: str, dice: Dice) -> Iterator[tuple[str, dict]]:
    """Yields every name of a region that its beginnings and the endings of a part give, with the region."""
    pairs = [(stem + end, region) for region in REGIONS for stem in region["stems"] for end in region[part]]
    yield from dice.shuffle(pairs)


def _people(dice: Dice) -> Iterator[tuple[str, list[str]]]:
    for surname, region in _combinations("surnames", dice):
        yield surname, [f"{first} {surname}" for first in dice.sample(region["firsts"], dice.between(2, 3))]


def _ships_or_books(parts: tuple, pattern: str, dice: Dice) -> Iterator[tuple[str, list[str]]]:
    firsts, seconds = parts
    for first in dice.shuffle(firsts):
        yield first, [pattern.format(first, second) for second in dice.sample(seconds, 4)]


def _species_or_instruments(parts: tuple, dice: Dice) -> Iterator[tuple[str, list[str]]]:
    firsts, seconds, more = parts
    for second in chain(dice.shuffle(seconds), more):
        yield second, [f"the {first} {second}" for first in dice.sample(firsts, dice.between(2, 3))]


def _facts(entity: Entity, values: dict[str, Sequence[str]], dice: Dice) -> dict[str, str]:
    """Returns a value for each relation of the entity."""
    facts = {}
    for name, relation in relations_of(entity.kind):
        facts[name] = _draw(relation.value, facts, values, dice)
    return facts


def _draw(kind: str, facts: dict[str, str], values: dict[str, Sequence[str]], dice: Dice) -> str:
    """Returns a value of a type; years fit the years in ``facts``."""
    match kind:
        case "launch":
            return str(dice.between(1770, 1880))
        case "sinking":
            return str(int(facts["ship_launch"]) + dice.between(15, 60))
        case "built":
            return str(dice.between(1480, 1860))
        case "length":
            return f"{dice.between(60, 900)} metres"
        case "height":
            return f"{dice.between(18, 120)} metres"
        case _:
            return dice.pick(values[kind])


def draw_other(relation: str, facts: dict[str, str], used: list[str], values: dict, dice: Dice) -> str:
    """Returns a value for a trap about the entity: none of its facts, and not used before."""
    kind = RELATIONS[relation].value
    while True:
        match kind:
            case "launch" | "sinking":
                other = str(dice.between(int(facts["ship_launch"]) + 1, int(facts["ship_sinking"]) - 1))
            case "built":
                other = str(int(facts["tower_year"]) + dice.between(8, 80))
            case _:
                other = _draw(kind, facts, values, dice)
        if other not in facts.values() and other not in used:
            return other


def relations_of(kind: str) -> list[tuple[str, Relation]]:
    """Returns the relations of a kind of entity, by name."""
    return [(name, relation) for name, relation in RELATIONS.items() if relation.kind == kind]
