import pytest
from ir_measures import AP, RR, P, nDCG

from pyterrier_cascade import RelativeCost, RelativeTokenCost, Survival
from pyterrier_cascade.measures.names import parse_measures


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("AP", [AP]),
        (AP, [AP]),
        (["P@1", nDCG @ 10, "RR"], [P @ 1, nDCG @ 10, RR]),
        ("map", [AP]),
        (("ndcg_cut_10", "recip_rank"), [nDCG @ 10, RR]),
        (["RelativeCost", "RelativeTokenCost", "Survival@12"], [RelativeCost, RelativeTokenCost, Survival @ 12]),
    ],
)
def test_names_and_measures(given, expected):
    assert parse_measures(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give at least one measure"),
        ([7], r"7 \(int\) is no measure; give a name such as 'AP'"),
        (
            "RelativCost",
            r"there is no measure 'RelativCost' \(did you mean 'RelativeCost'\?\); give a name of ir-measures",
        ),
        ("Survival", "the measure 'Survival' needs a cutoff; write, for example, 'Survival@10'"),
    ],
)
def test_other_values(given, message):
    with pytest.raises(ValueError, match=message):
        parse_measures(given)
