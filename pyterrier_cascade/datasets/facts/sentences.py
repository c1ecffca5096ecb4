"""The sentences of ``as2:facts`` about an entity, made from templates."""

import re
from collections.abc import Iterator

from pyterrier_cascade.datasets.facts.dice import Dice
from pyterrier_cascade.datasets.facts.wordings import CHATTER, OPENINGS, Relation
from pyterrier_cascade.datasets.facts.world import Entity, Sentence, draw_other, relations_of

_SLOT_CHOICE = re.compile(r"\[([^]]*)\]")
_TAKES_OPENING = ("{E}", "{V}", "{X}", "The ", "It was ", "In ", "A ")


def describe(entity: Entity, split: str, values: dict, dice: Dice) -> Iterator[Sentence]:
    """Yields the sentences about an entity: its facts in some wordings, traps and chatter."""
    used = []
    for name, relation in relations_of(entity.kind):
        for template in _statements(relation, split, dice):
            yield Sentence(_say(template, entity.name, dice, value=entity.facts[name]), "fact", name)
        for template in dice.sample(relation.traps, dice.between(3, 4)):
            used.append(draw_other(name, entity.facts, used, values, dice))
            metres = f"{dice.between(6, 17)} metres"
            yield Sentence(_say(template, entity.name, dice, other=used[-1], metres=metres), "trap", name)
    for template in dice.sample(CHATTER[entity.kind], dice.between(2, 3)):
        yield Sentence(_say(template, entity.name, dice), "chatter", "")


def _statements(relation: Relation, split: str, dice: Dice) -> list[str]:
    """Returns one to three wordings; outside train, one in four is a held-out wording."""
    n = dice.pick((1, 1, 1, 2, 2, 3))
    if split == "train":
        return dice.sample(relation.statements, n)
    known, new = dice.shuffle(relation.statements), dice.shuffle(relation.held_out_statements)
    return [(new if dice.chance(0.25) else known).pop() for _ in range(n)]


def _say(template: str, name: str, dice: Dice, **slots: str) -> str:
    """Returns the sentence, now and then with an opening such as "The local museum explains that"."""
    if not template.startswith(_TAKES_OPENING) or dice.chance(0.85):
        return fill(template, name, dice, **slots)
    return dice.pick(OPENINGS) + fill(template[:2].lower() + template[2:], name, dice, **slots)


def fill(template: str, name: str, dice: Dice, value: str = "", other: str = "", metres: str = "") -> str:
    """Returns the sentence or question that a template of :mod:`wordings` gives.

    Args:
        template: The text with its slots.
        name: The name of the entity, for ``{e}`` and ``{E}``.
        dice: The dice that choose among ``[one|two|three]``.
        value: The value of the fact, for ``{v}``, ``{V}`` and ``{av}``.
        other: Another value, for ``{x}``, ``{X}`` and ``{ax}``.
        metres: A small length, for ``{s}``.
    """
    template = _SLOT_CHOICE.sub(lambda choice: dice.pick(choice[1].split("|")), template)
    slots = {"e": name, "E": capitalised(name), "s": metres}
    for slot, text in (("v", value), ("x", other)):
        if text:
            slots |= {slot: text, slot.upper(): capitalised(text), f"a{slot}": with_article(text)}
    return template.format_map(slots)


def capitalised(text: str) -> str:
    """Returns the text with its first letter in upper case, also after an opening quotation mark."""
    start = 1 if text.startswith('"') else 0
    return text[: start + 1].upper() + text[start + 1 :]


def with_article(noun: str) -> str:
    """Returns the noun with "a" or "an"; the rule fits the nouns of this data set, not all of English."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
