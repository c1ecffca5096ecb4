"""Measures by their names: those of ir-measures, those of trec_eval as ``pt.Experiment`` takes them, and ours."""

from collections.abc import Sequence
from typing import Any

import ir_measures
from ir_measures.measures import registry

from pyterrier_cascade.checks import did_you_mean
from pyterrier_cascade.measures.cost import RelativeCost, RelativeTokenCost, Survival

OURS = {measure.NAME: measure for measure in (RelativeCost, RelativeTokenCost, Survival)}

for _name, _measure in OURS.items():
    registry.setdefault(_name, _measure)


def parse_measures(given: Any) -> list[ir_measures.Measure]:
    """Returns the measures that a user means.

    Args:
        given: A measure or several, each an object of ir-measures or a name: ``"AP"``, ``"P@1"``, ``"map"``,
            ``"ndcg_cut_10"``, ``"RelativeCost"``, ``"Survival@12"``.
    """
    given = [given] if isinstance(given, str | ir_measures.Measure) else list(given)
    if not given:
        raise ValueError("give at least one measure")
    return [measure for one in given for measure in _parsed(one)]


def _parsed(one: Any) -> Sequence[ir_measures.Measure]:
    if isinstance(one, ir_measures.Measure):
        return [one]
    if not isinstance(one, str):
        raise ValueError(f"{one!r} ({type(one).__name__}) is no measure; give a name such as 'AP', or ir_measures.AP")
    try:
        found = [ir_measures.parse_measure(one)]
    except (NameError, ValueError, SyntaxError):
        try:
            found = list(ir_measures.parse_trec_measure(one))
        except ValueError:
            raise ValueError(
                f"there is no measure {one!r}{did_you_mean(one.partition('@')[0], registry)}; give a name of "
                f"ir-measures such as 'nDCG@10', or one of {', '.join(OURS)}"
            ) from None
    for measure in found:
        if missing := [p for p, of in measure.SUPPORTED_PARAMS.items() if of.required and p not in measure.params]:
            raise ValueError(f"the measure {one!r} needs a {missing[0]}; write, for example, '{one}@10'")
    return found
