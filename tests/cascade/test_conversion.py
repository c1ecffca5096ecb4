"""A cascade of a trained cross-encoder: with nothing dropped its scores are the cross-encoder's own."""

import gc
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder as Theirs

from pyterrier_cascade import Cascade, CrossEncoder, Training
from tests import lists, tiny


@pytest.fixture(scope="module")
def candidates() -> pd.DataFrame:
    return lists.candidates([7, 3, 1, 20])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> str:
    return tiny.save(tmp_path_factory.mktemp("classifier") / "six", layers=6, outputs=1)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_scores_are_those_of_the_cross_encoder_and_of_sentence_transformers(family, outputs, candidates, tmp_path):
    folder = tiny.save(tmp_path / "model", family, layers=4, outputs=outputs)
    found = Cascade.from_cross_encoder(folder)(candidates)
    ours = CrossEncoder.from_pretrained(folder)(candidates)
    pd.testing.assert_frame_equal(found[ours.columns], ours)
    pairs = list(zip(found["query"], found["text"], strict=True))
    model = Theirs(folder, device="cpu")
    logits = model.predict(pairs, activation_fn=torch.nn.Identity())
    wanted = logits if outputs == 1 else logits[:, 1] - logits[:, 0]
    np.testing.assert_allclose(found["score"], wanted, atol=1e-5)
    # Its object and the folder that it writes are sources as well.
    pd.testing.assert_frame_equal(Cascade.from_cross_encoder(model)(candidates), found)
    model.save_pretrained(str(tmp_path / "theirs"))
    pd.testing.assert_frame_equal(Cascade.from_cross_encoder(str(tmp_path / "theirs"))(candidates), found)


def test_a_classifier_without_a_dense_layer(candidates, tmp_path):
    encoder = tiny.save(tmp_path / "bare", layers=2, outputs=None)
    ranker = CrossEncoder.from_pretrained(encoder, dense=False, training=Training(epochs=1))
    labelled = candidates.assign(label=np.arange(len(candidates)) % 2)
    ranker.fit_candidates(labelled)
    cascade = Cascade.from_cross_encoder(ranker)
    np.testing.assert_allclose(cascade(candidates)["score"], ranker(candidates)["score"], atol=1e-6)


def test_an_object_brings_its_settings_and_weights(classifier, candidates):
    ranker = CrossEncoder.from_pretrained(classifier, layers=None, max_length=16, text_field="body", verbose=True)
    cascade = Cascade.from_cross_encoder(ranker, max_length=24)
    assert (cascade.max_length, cascade.text_field, cascade.verbose) == (24, "body", True)
    assert Cascade.from_cross_encoder(ranker).max_length == 16
    assert cascade.model.source == classifier


def test_a_trained_object_is_converted_with_its_present_weights(tmp_path, candidates):
    encoder = tiny.save(tmp_path / "bare", layers=2, outputs=None)
    ranker = CrossEncoder.from_pretrained(encoder, training=Training(epochs=1, learning_rate=1e-2))
    ranker.fit_candidates(candidates.assign(label=np.arange(len(candidates)) % 2))
    cascade = Cascade.from_cross_encoder(ranker)
    pd.testing.assert_series_equal(cascade(candidates)["score"], ranker(candidates)["score"])


def test_a_truncated_object_keeps_its_depth(classifier, candidates, tmp_path):
    folder = str(tmp_path / "three")
    ranker = CrossEncoder.from_pretrained(classifier).truncate(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker.fit_candidates(candidates.assign(label=np.arange(len(candidates)) % 2))
    ranker.save_pretrained(folder)
    cascade = Cascade.from_cross_encoder(folder)
    assert cascade.head_layers == (1, 2, 3) and cascade.full_layers == 6
    np.testing.assert_array_equal(cascade(candidates)["score"], ranker(candidates)["score"])


def test_saved_and_loaded(classifier, candidates, tmp_path):
    cascade = Cascade.from_cross_encoder(classifier, layers=(2, 6))
    found = cascade(candidates)
    cascade.save_pretrained(str(tmp_path / "saved"))
    again = Cascade.from_pretrained(str(tmp_path / "saved"))
    pd.testing.assert_frame_equal(again(candidates), found)
    assert again.head_layers == (2, 6)
    moved = Cascade.from_pretrained(str(tmp_path / "saved"), layers=(3, 4, 6))
    assert moved.head_layers == (3, 4, 6)
    assert moved.model.loaded.untrained == f"the heads of {str(tmp_path / 'saved')!r} at layers (3, 4) are fresh"
    np.testing.assert_array_equal(moved(candidates)["score"], found["score"])


def test_fresh_heads_warn_where_they_drop_candidates(classifier, candidates):
    cascade = Cascade.from_cross_encoder(classifier)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cascade(candidates)
        cascade(plan=(6,))(candidates)
    message = (
        f"the heads of {classifier!r} at layers (2, 3, 4, 5) are fresh: call distil(candidates) before candidates are "
        "dropped by their scores"
    )
    for use in (cascade(alpha=0.4), cascade.trace):
        with pytest.warns(UserWarning, match=re.escape(message)):
            use(candidates)


def test_from_pretrained_says_that_the_classifier_is_dropped(classifier, candidates):
    message = (
        f"the classifier of {classifier!r} is dropped, and all heads are fresh; "
        f"Cascade.from_cross_encoder({classifier!r}) keeps it as the last head, with the same scores"
    )
    with pytest.warns(UserWarning, match=re.escape(message)):
        Cascade.from_pretrained(classifier)(candidates)


def test_a_regression_head_on_another_scale(candidates, tmp_path):
    folder = tiny.save(tmp_path / "model", layers=4, outputs=1)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    model.config.problem_type = "regression"
    model.classifier.weight.data *= 100
    model.classifier.bias.data += 300
    model.save_pretrained(folder)
    cascade = Cascade.from_cross_encoder(folder)
    wanted = CrossEncoder.from_pretrained(folder)(candidates)["score"]
    np.testing.assert_array_equal(cascade(candidates)["score"], wanted)
    assert cascade(candidates)["score"].abs().mean() > 50
    many = lists.candidates([8] * 100)
    cascade.distil(many)
    assert cascade.history["correlation"].iloc[-1] > 0.9
    trace = cascade.trace(many)
    # The heads speak on the scale of the last one.
    assert abs(trace.scores[:, 1].mean() - trace.scores[:, -1].mean()) < 0.3 * trace.scores[:, -1].std()


def test_training_with_labels_goes_through_the_classifier(classifier, candidates):
    cascade = Cascade.from_cross_encoder(classifier, layers=(2, 6))
    before = cascade.model.loaded.module.classifier[1].dense.weight.clone()
    cascade.fit_candidates(candidates.assign(label=np.arange(len(candidates)) % 2))
    assert not torch.equal(before, cascade.model.loaded.module.classifier[1].dense.weight)
    assert cascade.model.loaded.untrained is None


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("bare", {}, ValueError, "is an encoder without a classifier; Cascade.from_pretrained gives it fresh heads"),
        ("three", {}, ValueError, "tells 3 classes apart; a reranker needs a head of 1 or 2 outputs"),
        ("six", {"layers": (2, 4)}, ValueError, "layers=(2, 4), but the classifier of"),
        ("six", {"layers": (2, 7)}, ValueError, "has 6; use layers 1 to 6"),
        ("six", {"layers": (4, 2)}, ValueError, "heads at layers (4, 2): give layers from 1 in ascending order"),
        ("six", {"alpah": 0.3}, TypeError, "did you mean 'alpha'?"),
        ("/no/such", {}, FileNotFoundError, "there is no folder '/no/such'"),
        ("cascade", {}, ValueError, "Cascade.from_pretrained"),
        (7, {}, TypeError, "not an object of builtins.int"),
    ],
)
def test_bad_sources(source, options, error, message, classifier, saved, tmp_path):
    folders = {
        "bare": lambda: tiny.save(tmp_path / "bare", outputs=None),
        "three": lambda: tiny.save(tmp_path / "three", outputs=3),
        "six": lambda: classifier,
        "cascade": lambda: saved,
    }
    given = folders[source]() if source in folders else source
    with pytest.raises(error, match=re.escape(message)):
        Cascade.from_cross_encoder(given, **options)


def test_a_ranker_of_another_class_is_refused():
    with pytest.raises((TypeError, ValueError), match="CrossEncoder"):
        Cascade.from_cross_encoder(object())


def test_an_untrained_classifier_is_refused_when_it_is_loaded(tmp_path):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path / "bare", outputs=None))
    ranker.save_pretrained(str(tmp_path / "saved"))
    gc.collect()
    with pytest.raises(ValueError, match="a cascade is made of a trained cross-encoder; train it with fit"):
        Cascade.from_cross_encoder(str(tmp_path / "saved")).model.loaded  # noqa: B018
