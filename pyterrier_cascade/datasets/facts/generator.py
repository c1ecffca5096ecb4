"""The generator of ``as2:facts``: answer selection about an invented world, from a seed.

A question asks for one fact about one entity ("Who founded the Skelvik Workshop?"). One to three of its candidates
state the fact, in different wordings. The others share the question's words: sentences about another relation of the
same entity, about the same relation of another entity, about entities of a similar name, sentences with names and dates
in another role, and chatter. Entities differ from split to split, and some wordings are kept for dev and test.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.datasets.facts.dice import Dice
from pyterrier_cascade.datasets.facts.sentences import describe, fill
from pyterrier_cascade.datasets.facts.wordings import RELATIONS
from pyterrier_cascade.datasets.facts.world import Entity, Sentence, build_world

DEFAULT_SEED = 2025
N_QUESTIONS = {"train": 600, "dev": 100, "test": 200}
MIN_CANDIDATES, MAX_CANDIDATES = 20, 40


@dataclass(frozen=True)
class Facts:
    """The generated data. :func:`generate` returns one object to all callers: copy a frame before you change it.

    Args:
        pairs: For train, dev and test: ``qid, query, docno, text, label, relation``, one row per candidate; the label
            is 0 or 1.
        questions: For train, dev and test: ``qid, query, relation, entity, answer``, one row per question.
        corpus: ``docno, text``: all candidates and further sentences. Every sentence of the corpus that answers a
            question is among its candidates, so the labels are complete for retrieval too.
    """

    pairs: dict[str, pd.DataFrame]
    questions: dict[str, pd.DataFrame]
    corpus: pd.DataFrame


@lru_cache(maxsize=4)
def generate(seed: int = DEFAULT_SEED) -> Facts:
    """Returns the data of a seed, the same on every machine and Python version.

    Args:
        seed: A whole number from 0.

    Raises:
        ValueError: If the seed is another number.
    """
    if not is_count(seed, least=0):
        raise ValueError(f"seed={seed!r}; give a whole number from 0")
    dice = Dice(seed)
    world, values = build_world(dice)
    for split, entities in world.items():
        for entity in entities:
            entity.sentences = list(describe(entity, split, values, dice))

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


def _ask(split: str, entities: list[Entity], dice: Dice) -> Iterator[tuple[str, str, str, Entity]]:
    """Yields the questions of a split: qid, query, relation, entity."""
    wordings = {}
    for name, relation in RELATIONS.items():
        known, new = dice.shuffle(relation.questions), dice.shuffle(relation.held_out_questions)
        # Outside train, every other question has a held-out wording.
        wordings[name] = known if split == "train" else [q for pair in zip(known, new * 3, strict=False) for q in pair]
    asked = dice.shuffle([(entity, name) for entity in entities for name in entity.facts if RELATIONS[name].questions])
    for i, (entity, name) in enumerate(asked[: N_QUESTIONS[split]], start=1):
        template = wordings[name].pop(0)
        wordings[name].append(template)
        yield f"{split}-{i:03d}", fill(template, entity.name, dice), name, entity


def _candidates(entity: Entity, relation: str, neighbours: list[Entity], dice: Dice) -> list[tuple[Sentence, int]]:
    """Returns the candidates of a question with their labels, in random order."""

    def states_it(sentence: Sentence) -> bool:
        return (sentence.role, sentence.relation) == ("fact", relation)

    answers = [s for s in entity.sentences if states_it(s)]
    others = [e for e in neighbours if e is not entity]
    family = [s for e in others if e.family == entity.family for s in e.sentences]
    n = min(dice.between(MIN_CANDIDATES, MAX_CANDIDATES) for _ in range(2)) - len(answers)
    # The most misleading sentences come first.
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
        # Some of the drawn sentences may have been chosen before, so a few more are drawn than needed.
        drawn = [s for s in dice.sample(source, at_most + len(chosen)) if s not in chosen]
        chosen += drawn[:at_most]
    return dice.shuffle([(s, 1) for s in answers] + [(s, 0) for s in chosen[:n]])
