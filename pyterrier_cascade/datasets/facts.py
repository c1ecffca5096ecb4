"""`as2:facts`: answer selection about an invented world, generated from a seed.

A question asks for one fact about one entity ("Who founded the Skelvik Workshop?"). Its candidates are one to three
sentences that state the fact, in different wordings, among sentences that share its words: the same entity with another
relation, the same relation of another entity, entities of a similar name, names and dates in another role, and chatter.
Entities differ from split to split, and some wordings are kept for dev and test. The wordings are in `_facts_text.py`.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice

import pandas as pd

from pyterrier_cascade.datasets import _facts_text as words

DEFAULT = 2025
N_QUESTIONS = {"train": 600, "dev": 100, "test": 200}
# Per kind of entity; "other" is asked nothing and only fills the corpus.
N_ENTITIES = {"train": 43, "dev": 8, "test": 15, "other": 4}
MIN_CANDIDATES, MAX_CANDIDATES = 20, 40

_SLOT_CHOICE = re.compile(r"\[([^]]*)\]")
_TAKES_OPENING = ("{E}", "{V}", "{X}", "The ", "It was ", "In ", "A ")


@dataclass(frozen=True)
class Facts:
    """The data set. `generate` returns the same object to every caller: copy a frame before changing it.

    Args:
        pairs: For train, dev and test: `qid, query, docno, text, label, relation`, one row per candidate; label
            is 0 or 1.
        questions: For train, dev and test: `qid, query, relation, entity, answer`, one row per question.
        corpus: `docno, text`: all candidates and further sentences. Whatever answers a question in the corpus is among
            its candidates, so the labels are complete for retrieval too.
    """

    pairs: dict[str, pd.DataFrame]
    questions: dict[str, pd.DataFrame]
    corpus: pd.DataFrame


class Dice:
    """Seeded choices that are the same on every Python version: only `Random.random()` promises that.

    Args:
        seed: An integer.
    """

    def __init__(self, seed: int):
        """Start the sequence that belongs to the seed."""
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence):
        """One of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence, n: int) -> list:
        """At most n of the items, in random order."""
        items = list(items)
        n = min(n, len(items))
        for i in range(n):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items[:n]

    def shuffle(self, items: Sequence) -> list:
        """The items in random order, as a new list."""
        return self.sample(items, len(items))


@dataclass(eq=False)
class Entity:
    """Somebody or something of the invented world, with its facts and all that is said about it.

    Args:
        kind: What it is: a key of `CHATTER`.
        name: As it stands inside a sentence: "the Salt Otter".
        family: Shared by the entities whose names are alike.
        facts: Relation to value, one each.
        sentences: What is said about it.
    """

    kind: str
    name: str
    family: str
    facts: dict[str, str] = field(default_factory=dict)
    sentences: list["Sentence"] = field(default_factory=list)


@dataclass(eq=False)
class Sentence:
    """A sentence about one entity.

    Args:
        text: The sentence.
        role: "fact" (it states the relation), "trap" (it looks as if it did) or "chatter".
        relation: The relation that is stated or mimicked; empty for chatter.
    """

    text: str
    role: str
    relation: str


@lru_cache(maxsize=4)
def generate(seed: int = DEFAULT) -> Facts:
    """The data set of this seed: the same on every machine and Python version.

    Args:
        seed: An integer from 0; the embedded data set is that of `DEFAULT`.
    """
    if seed < 0:
        raise ValueError(f"seed={seed}; give a whole number from 0")
    dice = Dice(seed)
    world, values = _build_world(dice)
    for split, entities in world.items():
        for entity in entities:
            entity.sentences = list(_describe(entity, split, values, dice))

    entities = [entity for split in (*N_QUESTIONS, "other") for entity in world[split]]
    texts = dice.shuffle([sentence.text for entity in entities for sentence in entity.sentences])
    docnos = {text: f"f{i:05d}" for i, text in enumerate(texts)}
    corpus = pd.DataFrame({"docno": list(docnos.values()), "text": list(docnos)})

    questions, pairs = {}, {}
    for split in N_QUESTIONS:
        asked = list(_ask(split, world[split], dice))
        columns = ["qid", "query", "relation", "entity", "answer"]
        questions[split] = pd.DataFrame(
            [(qid, query, relation, e.name, e.facts[relation]) for qid, query, relation, e in asked], columns=columns
        )
        neighbours = world[split] if split == "train" else world[split] + world["other"]
        pairs[split] = pd.DataFrame(
            [
                (qid, query, docnos[sentence.text], sentence.text, label, relation)
                for qid, query, relation, entity in asked
                for sentence, label in _candidates(entity, relation, neighbours, dice)
            ],
            columns=["qid", "query", "docno", "text", "label", "relation"],
        )
    return Facts(pairs=pairs, questions=questions, corpus=corpus)


def capitalised(text: str) -> str:
    """The text with its first letter in upper case, also behind an opening quotation mark."""
    start = 1 if text.startswith('"') else 0
    return text[: start + 1].upper() + text[start + 1 :]


def with_article(noun: str) -> str:
    """The noun with "a" or "an" before it; good for the nouns of this data set, not for all of English."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def fill(template: str, name: str, dice: Dice, value: str = "", other: str = "", metres: str = "") -> str:
    """The sentence or question that a template of `_facts_text.py` gives.

    Args:
        template: The text with its slots.
        name: The entity, for `{e}` and `{E}`.
        dice: Chooses among `[one|two|three]`.
        value: The value of the fact, for `{v}`, `{V}` and `{av}`.
        other: Another value, for `{x}`, `{X}` and `{ax}`.
        metres: A small length, for `{s}`.
    """
    template = _SLOT_CHOICE.sub(lambda choice: dice.pick(choice[1].split("|")), template)
    slots = {"e": name, "E": capitalised(name), "s": metres}
    for slot, text in (("v", value), ("x", other)):
        if text:
            slots |= {slot: text, slot.upper(): capitalised(text), f"a{slot}": with_article(text)}
    return template.format_map(slots)


def _build_world(dice: Dice) -> tuple[dict[str, list[Entity]], dict[str, Sequence[str]]]:
    """The entities of each split, with their facts, and what each type of answer is drawn from."""
    places, people = _places(dice), _people(dice)
    families = {
        "ship": _ships_or_books(words.SHIP_NAMES, "the {} {}", dice),
        "book": _ships_or_books(words.BOOK_TITLES, '"The {} {}"', dice),
        "species": _species_or_instruments(words.SPECIES_NAMES, dice),
        "instrument": _species_or_instruments(words.INSTRUMENT_NAMES, dice),
        "person": people,
    }
    world = {}
    for split, n in N_ENTITIES.items():
        world[split] = [entity for kind in families for entity in _take(kind, families[kind], n)]
        world[split] += _around_places(places, n, dice)
    # Answers are never entities that are asked about: those would be described in two ways.
    values = words.VALUES | {
        "person": [name for _, names in islice(people, 60) for name in names],
        "town": list(islice(places, 80)),
        "river": [name for name, _ in islice(_combinations("rivers", dice), 50)],
    }
    for entities in world.values():
        for entity in entities:
            entity.facts = _facts(entity, values, dice)
    return world, values


def _combinations(part: str, dice: Dice) -> Iterator[tuple[str, dict]]:
    """Each beginning of each region with each ending of this part, in random order, and the region."""
    pairs = [(stem + end, region) for region in words.REGIONS for stem in region["stems"] for end in region[part]]
    yield from dice.shuffle(pairs)


def _places(dice: Dice) -> Iterator[str]:
    for name, _ in _combinations("towns", dice):
        yield name


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


def _take(kind: str, families: Iterator[tuple[str, list[str]]], n: int) -> list[Entity]:
    """n entities; the rest of a family that was begun is dropped, so that no family is in two splits."""
    taken = []
    while len(taken) < n:
        family, names = next(families)
        taken += [Entity(kind, name, family) for name in names]
    return taken[:n]


def _around_places(places: Iterator[str], n: int, dice: Dice) -> list[Entity]:
    """n companies, n bridges, ...: each place lends its name to one to three of each kind."""
    found = {kind: [] for kind in words.PLACE_NAMES}
    while min(map(len, found.values())) < n:
        place = next(places)
        for kind, patterns in words.PLACE_NAMES.items():
            names = dice.sample(patterns, dice.between(1, 3))
            found[kind] += [Entity(kind, name.format(place), place) for name in names]
    return [entity for entities in found.values() for entity in entities[:n]]


def _facts(entity: Entity, values: dict[str, Sequence[str]], dice: Dice) -> dict[str, str]:
    """A value for each relation of the entity."""
    facts = {}
    for name, relation in _relations(entity.kind):
        facts[name] = _draw(relation.value, facts, values, dice)
    return facts


def _draw(kind: str, facts: dict[str, str], values: dict[str, Sequence[str]], dice: Dice) -> str:
    """A value of this type; years fit those already in `facts`."""
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


def _draw_other(relation: str, facts: dict[str, str], used: list[str], values: dict, dice: Dice) -> str:
    """A value for another role in the entity's life: not one of its facts, nor used before."""
    kind = words.RELATIONS[relation].value
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


def _relations(kind: str) -> list[tuple[str, words.Relation]]:
    return [(name, relation) for name, relation in words.RELATIONS.items() if relation.kind == kind]


def _describe(entity: Entity, split: str, values: dict, dice: Dice) -> Iterator[Sentence]:
    """All that is said about the entity: its facts in some wordings, traps and chatter."""
    used = []
    for name, relation in _relations(entity.kind):
        for template in _statements(relation, split, dice):
            yield Sentence(_say(template, entity.name, dice, value=entity.facts[name]), "fact", name)
        for template in dice.sample(relation.traps, dice.between(3, 4)):
            used.append(_draw_other(name, entity.facts, used, values, dice))
            metres = f"{dice.between(6, 17)} metres"
            yield Sentence(_say(template, entity.name, dice, other=used[-1], metres=metres), "trap", name)
    for template in dice.sample(words.CHATTER[entity.kind], dice.between(2, 3)):
        yield Sentence(_say(template, entity.name, dice), "chatter", "")


def _statements(relation: words.Relation, split: str, dice: Dice) -> list[str]:
    """One to three wordings; outside train one in four is held out."""
    n = dice.pick((1, 1, 1, 2, 2, 3))
    if split == "train":
        return dice.sample(relation.statements, n)
    known, new = dice.shuffle(relation.statements), dice.shuffle(relation.held_out_statements)
    return [(new if dice.chance(0.25) else known).pop() for _ in range(n)]


def _say(template: str, name: str, dice: Dice, **slots: str) -> str:
    """The sentence, now and then with an opening such as "The local museum explains that"."""
    if not template.startswith(_TAKES_OPENING) or dice.chance(0.85):
        return fill(template, name, dice, **slots)
    return dice.pick(words.OPENINGS) + fill(template[:2].lower() + template[2:], name, dice, **slots)


def _ask(split: str, entities: list[Entity], dice: Dice) -> Iterator[tuple[str, str, str, Entity]]:
    """The split's questions: qid, query, relation, entity."""
    wordings = {}
    for name, relation in words.RELATIONS.items():
        known, new = dice.shuffle(relation.questions), dice.shuffle(relation.held_out_questions)
        # Outside train every other question is a held-out one.
        wordings[name] = known if split == "train" else [q for pair in zip(known, new * 3, strict=False) for q in pair]
    asked = dice.shuffle(
        [(entity, name) for entity in entities for name in entity.facts if words.RELATIONS[name].questions]
    )
    for i, (entity, name) in enumerate(asked[: N_QUESTIONS[split]], start=1):
        template = wordings[name].pop(0)
        wordings[name].append(template)
        yield f"{split}-{i:03d}", fill(template, entity.name, dice), name, entity


def _candidates(entity: Entity, relation: str, neighbours: list[Entity], dice: Dice) -> list[tuple[Sentence, int]]:
    """The question's sentences with their labels, in random order."""

    def states_it(sentence: Sentence) -> bool:
        return (sentence.role, sentence.relation) == ("fact", relation)

    answers = [s for s in entity.sentences if states_it(s)]
    others = [e for e in neighbours if e is not entity]
    family = [s for e in others if e.family == entity.family for s in e.sentences]
    n = min(dice.between(MIN_CANDIDATES, MAX_CANDIDATES) for _ in range(2)) - len(answers)
    # What misleads most comes first.
    sources = (
        ([s for s in entity.sentences if s.role == "trap" and s.relation == relation], dice.between(1, 2)),
        ([s for s in entity.sentences if s.role == "fact" and s.relation != relation], 2),
        ([s for s in entity.sentences if s.relation != relation], dice.between(1, 2)),
        ([s for s in family if states_it(s)], 4),
        (family, dice.between(2, 6)),
        ([s for e in others for s in e.sentences if states_it(s)], dice.between(3, 7)),
        ([s for e in others for s in e.sentences], n),
    )
    chosen = []
    for source, at_most in sources:
        # A few more are drawn than needed: some may have been chosen before.
        drawn = [s for s in dice.sample(source, at_most + len(chosen)) if s not in chosen]
        chosen += drawn[:at_most]
    return dice.shuffle([(s, 1) for s in answers] + [(s, 0) for s in chosen[:n]])
