"""Certificates stay with the weights that they are for: in the configuration and in the model card."""

import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pyterrier_cascade import Cascade, FirstAnswerLost
from pyterrier_cascade.model import TrainedOn
from tests.lists import candidates

RECORD = TrainedOn(3, 9, 3, "CascadeTraining()")


@pytest.fixture(scope="module")
def frame():
    return candidates([6] * 60)


@pytest.fixture
def certificate(cascade, frame):
    """One that prunes, of heads that know nothing."""
    found = cascade.trace(frame).certify(FirstAnswerLost(), at_most=0.95, confidence=0.6, settings=[{"alpha": 0.4}])
    assert found.settings["alpha"] == 0.4 and found.cost < 1
    return found


@pytest.fixture
def kept(cascade, certificate, tmp_path) -> str:
    cascade.save_pretrained(str(tmp_path / "kept"), certificates=[certificate])
    return str(tmp_path / "kept")


def test_a_certificate_comes_back_with_the_model(cascade, certificate, kept, frame):
    loaded = Cascade.from_pretrained(kept)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded.certificates == cascade.certificates == [certificate]
        assert pickle.loads(pickle.dumps(loaded)).certificates == [certificate]
    assert loaded.fingerprint() == certificate.fingerprint
    run = loaded(counts=(5, 4, 3, 2))(alpha=0, counts=None)(**loaded.certificates[0].settings)
    assert run == loaded(alpha=0.4)
    # Other settings of the ranker give way.
    assert loaded(counts=(5, 4, 3, 2), exited="drop")(**loaded.certificates[0].settings) == loaded(alpha=0.4)
    assert json.loads((Path(kept) / "config.json").read_text())["certificates"] == [certificate.to_config()]


def test_the_card_says_it_in_words(certificate, kept, cascade, tmp_path):
    card = (Path(kept) / "README.md").read_text(encoding="utf-8")
    assert f"\n- {certificate}\n  Run it as `cascade(alpha=0.4)`.\n" in card.split("## Guarantees")[1]
    cascade.model.loaded.mark_trained(RECORD)
    cascade.save_pretrained(str(tmp_path / "without"))
    assert "Guarantees" not in (tmp_path / "without" / "README.md").read_text(encoding="utf-8")


def test_certificates_are_kept_each_once(certificate, kept, tmp_path):
    loaded, other = Cascade.from_pretrained(kept), replace(certificate, at_most=0.7)
    loaded.save_pretrained(str(tmp_path / "again"), data="made up", certificates=[certificate, other])
    assert Cascade.from_pretrained(str(tmp_path / "again")).certificates == [certificate, other]
    loaded.save_pretrained(str(tmp_path / "again"))
    assert Cascade.from_pretrained(str(tmp_path / "again")).certificates == [certificate, other]


def test_a_training_clears_them(kept):
    loaded = Cascade.from_pretrained(kept)
    loaded.model.mark_fitted([], RECORD)
    assert loaded.certificates == []
    assert pickle.loads(pickle.dumps(loaded)).certificates == []


def test_a_certificate_of_other_weights_or_settings_is_refused(cascade, certificate, tmp_path):
    for other in (cascade(max_length=16), cascade(text_field="body")):
        message = f"the certificate of alpha=0.4 is for other weights or settings than {other!r} has; certify a trace"
        with pytest.raises(ValueError, match=re.escape(message)):
            other.save_pretrained(str(tmp_path / "other"), certificates=[certificate])
    with torch.no_grad():
        cascade.model.loaded.module.heads[0][0].weight += 1
    with pytest.raises(ValueError, match=r"the certificate of alpha=0.4 is for other weights or settings"):
        cascade.save_pretrained(str(tmp_path / "other"), certificates=[certificate])
    assert not (tmp_path / "other").exists()


def test_a_certificate_for_other_settings_does_not_hold(kept, certificate):
    loaded = Cascade.from_pretrained(kept, max_length=16)
    message = (
        "1 of 1 certificates are for another max_length, passages, engine, precision, text_field or calibration than"
    )
    with pytest.warns(UserWarning, match=message):
        assert loaded.certificates == [certificate]
