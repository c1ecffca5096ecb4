import pytest

from pyterrier_cascade import DCBertTraining


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "pair"}, "loss must be one of listwise, pointwise, not 'pair'"),
        ({"watch": "MRR"}, "watch must be one of MAP, P@10, not 'MRR'"),
        ({"epochs": -1}, "epochs must be a whole number and at least 0, not -1"),
        ({"random_first": 1.5}, "random_first must be a share from 0 to 1, not 1.5"),
        ({"random_first": float("nan")}, "random_first must be a share from 0 to 1, not nan"),
        ({"teacher_weight": True}, "teacher_weight must be a share from 0 to 1, not True"),
        ({"epochs": 0, "frozen_epochs": 0}, "frozen_epochs=0 and epochs=0 are no training; give whole numbers, one"),
        ({"frozen_epochs": 0.5}, "frozen_epochs=0.5 and epochs=2 are no training; give whole numbers, one of them at"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        DCBertTraining(**settings)


def test_the_settings_of_the_paper():
    assert repr(DCBertTraining(negatives=3)) == "DCBertTraining(negatives=3)"
    published = DCBertTraining.as_published()
    assert (published.loss, published.learning_rate, published.rate_of_heads) == ("pointwise", 4e-5, 4e-5)
