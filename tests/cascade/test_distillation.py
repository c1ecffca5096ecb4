"""Heads learn the last head's scores without labels; the encoder and the last head stay as they are."""

import os
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from pyterrier_cascade import Cascade, Distillation
from pyterrier_cascade.cascade import distillation
from pyterrier_cascade.cascade.head_learning import agreement
from tests import lists, tiny

FEW = Distillation(epochs=3)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> str:
    return tiny.save(tmp_path_factory.mktemp("classifier") / "six", layers=6, outputs=1)


@pytest.fixture(scope="module")
def candidates() -> pd.DataFrame:
    return lists.candidates([8] * 60, seed=1)


@pytest.fixture(scope="module")
def taught(classifier, candidates) -> Cascade:
    return Cascade.from_cross_encoder(classifier).distil(candidates)


def test_heads_learn_and_everything_else_stays_bit_for_bit(classifier, taught, candidates):
    before = Cascade.from_cross_encoder(classifier).model.loaded.module.state_dict()
    after = taught.model.loaded.module.state_dict()
    changed = {name.split(".")[0] for name, weight in before.items() if not torch.equal(weight, after[name])}
    assert changed <= {"heads", "seen_queries"} and "heads" in changed
    # The states get nearer to the last ones from layer to layer, and so do the scores.
    correlation = taught.history["correlation"]
    assert list(taught.history["layer"]) == [2, 3, 4, 5] and correlation.is_monotonic_increasing
    assert correlation.iloc[-1] > 0.9
    fresh = lists.candidates([8] * 60, seed=2)
    trace = taught.trace(fresh)
    assert np.corrcoef(trace.scores[:, 3], trace.scores[:, 4])[0, 1] > 0.9


def test_the_report_is_measured_on_held_out_questions(taught, candidates):
    blocks = pd.factorize(candidates["qid"])[1]
    held = distillation.split(len(blocks), Distillation())
    assert held.sum() == 12
    names = set(blocks[held])
    trace = taught.trace(candidates[candidates["qid"].isin(names)].reset_index(drop=True))
    for number, row in taught.history.iterrows():
        found = agreement(trace.scores[:, number], trace.scores[:, -1], trace.questions)
        np.testing.assert_allclose(found, row[["correlation", "top1", "ndcg"]].to_numpy(dtype=float), atol=1e-3)


def test_it_remembers_the_queries_through_files_and_pickles(taught, candidates, tmp_path):
    queries = [*candidates["query"].head(3), " ".join(candidates["query"].iloc[0].upper().split(" ")), "who is new"]
    taught.save_pretrained(str(tmp_path / "saved"))
    for ranker in (taught, Cascade.from_pretrained(str(tmp_path / "saved")), pickle.loads(pickle.dumps(taught))):
        assert ranker.has_seen(queries).tolist() == [True] * 4 + [False]
        assert ranker.model.loaded.untrained is None
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "Its last head is the classifier of the cross-encoder" in card
    assert "60 questions with 480 candidates, without labels" in card
    assert "| head at layer 5 |" in card


def test_training_with_labels_is_remembered_too(saved, results):
    cascade = Cascade.from_pretrained(saved)
    assert not cascade.has_seen(["what ship"]).any()
    cascade.fit_candidates(results.assign(label=[1, 0, 0, 1, 0]), dev=results.assign(label=[1, 0, 0, 1, 0]))
    assert cascade.has_seen(["what ship", "who founded the town", "else"]).tolist() == [True, True, False]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_states_are_those_of_hugging_face(family, tmp_path):
    folder = tiny.save(tmp_path / "model", family, layers=3, outputs=2)
    cascade = Cascade.from_cross_encoder(folder)
    frame = lists.candidates([2, 3])
    blocks = distillation.frames.Blocks.of(frame)
    states = distillation.read_states(cascade, frame, blocks, (1, 2, 3), tmp_path / "states")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = distillation.frames.ranking(frame, blocks, np.zeros(len(frame)))
    for place, row in enumerate(rows):
        inputs = tokenizer(frame["query"].iloc[row], frame["text"].iloc[row], return_tensors="pt")
        with torch.no_grad():
            found = model(**inputs, output_hidden_states=True)
        logits = found.logits[0]
        assert states.scores[place] == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)
        for layer in (1, 2):
            hidden = found.hidden_states[layer][0]
            if family == "modernbert":
                hidden = model.model.final_norm(hidden)
            wanted = torch.cat([hidden.mean(0), hidden[0]]).detach().numpy()
            # The files hold half precision.
            np.testing.assert_allclose(states.features(layer)(np.array([place]))[0], wanted, rtol=2e-3, atol=2e-3)


def test_a_pass_that_was_killed_goes_on_where_it_stood(classifier, candidates, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "ROWS", 100)
    read, calls = distillation.read, []

    def counted(*given):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read(*given)

    monkeypatch.setattr(distillation, "read", counted)
    cascade = Cascade.from_cross_encoder(classifier)
    with pytest.raises(KeyboardInterrupt):
        cascade.distil(candidates, folder=str(tmp_path), settings=FEW)
    assert not cascade.has_seen(candidates["query"].tolist()).any() and len(os.listdir(tmp_path)) == 2
    cascade.distil(candidates, folder=str(tmp_path), settings=FEW)
    assert len(calls) == 3 + 3
    other = Cascade.from_cross_encoder(classifier).distil(candidates, settings=FEW)
    assert len(calls) == 6 + 5
    pd.testing.assert_frame_equal(cascade.history, other.history)
    # States do not depend on the heads that learned from them.
    cascade.distil(candidates, folder=str(tmp_path), settings=Distillation(epochs=1))
    assert len(calls) == 6 + 5
    # Other texts are other states.
    changed = candidates.assign(text=candidates["text"] + " ship")
    Cascade.from_cross_encoder(classifier).distil(changed, folder=str(tmp_path), settings=FEW)
    assert len(calls) == 11 + 5


def test_damaged_states_are_read_again(classifier, candidates, tmp_path, monkeypatch):
    """A flipped byte, a lost file, and two parts that changed places."""
    monkeypatch.setattr(distillation, "ROWS", 100)
    cascade = Cascade.from_cross_encoder(classifier).distil(candidates, folder=str(tmp_path), settings=FEW)
    one, other, third, fourth, fifth = sorted(tmp_path.iterdir())
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    states = next(third.glob("layer-*.npy"))
    content = bytearray(states.read_bytes())
    content[-1] ^= 1
    states.write_bytes(content)
    (fourth / "scores.npy").unlink()
    read, calls = distillation.read, []
    monkeypatch.setattr(distillation, "read", lambda *given: calls.append(1) or read(*given))
    again = Cascade.from_cross_encoder(classifier).distil(candidates, folder=str(tmp_path), settings=FEW)
    assert len(calls) == 4 and fifth.is_dir()
    pd.testing.assert_frame_equal(again.history, cascade.history)


def test_an_error_while_heads_learn_leaves_the_cascade_as_it_was(classifier, candidates, monkeypatch):
    cascade = Cascade.from_cross_encoder(classifier)
    before = {name: weight.clone() for name, weight in cascade.model.loaded.module.state_dict().items()}
    monkeypatch.setattr(distillation, "agreement", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cascade.distil(candidates, "auto", settings=FEW)
    after = cascade.model.loaded.module.state_dict()
    assert all(torch.equal(before[name], weight) for name, weight in after.items())
    assert cascade.head_layers == (2, 3, 4, 5, 6)


def test_heads_are_placed_where_the_cheapest_cascade_has_them(classifier, candidates, tmp_path, monkeypatch):
    seen = {}
    cheapest = distillation.cheapest_layers

    def chosen(scores, questions, layers):
        seen.update(shape=scores.shape, layers=layers)
        cheapest(scores, questions, layers)
        return (1, 4, 6)

    monkeypatch.setattr(distillation, "cheapest_layers", chosen)
    cascade = Cascade.from_cross_encoder(classifier)
    full = cascade(candidates)["score"]
    cascade.distil(candidates, "auto", settings=FEW)
    assert seen == {"shape": (96, 6), "layers": (1, 2, 3, 4, 5, 6)}
    assert cascade.head_layers == (1, 4, 6) and list(cascade.history["layer"]) == [1, 4]
    np.testing.assert_array_equal(cascade(candidates)["score"], full)
    pruned = cascade(alpha=0.5)(candidates)
    copy = pickle.loads(pickle.dumps(cascade))
    pd.testing.assert_frame_equal(copy(alpha=0.5)(candidates), pruned)
    cascade.save_pretrained(str(tmp_path / "saved"))
    loaded = Cascade.from_pretrained(str(tmp_path / "saved"))
    pd.testing.assert_frame_equal(loaded(alpha=0.5)(candidates), pruned)
    # And once more, at layers that are named.
    loaded.distil(candidates, (3, 6), settings=FEW)
    assert loaded.head_layers == (3, 6)
    pd.testing.assert_frame_equal(
        pickle.loads(pickle.dumps(loaded))(alpha=0.5)(candidates), loaded(alpha=0.5)(candidates)
    )


@pytest.mark.parametrize(
    ("change", "layers", "message"),
    [
        (lambda frame: frame[frame["qid"] == "q0"], None, "candidates of two queries or more, but these are of 1"),
        (lambda frame: frame.head(0), None, "needs candidates of two queries or more, but these are of 0"),
        (
            lambda frame: frame.assign(text="ship", query="who"),
            None,
            "the last head gives all 480 candidates the same score",
        ),
        (lambda frame: frame.drop(columns="text"), None, "put a text loader before this transformer"),
        (lambda frame: frame, (3, 7), "has 6; use layers 1 to 6"),
        (lambda frame: frame, (3, 5), "reads layer 6 and is the last head; let layers end with 6"),
        (lambda frame: frame, "best", "layers='best'"),
    ],
)
def test_bad_input(change, layers, message, classifier, candidates):
    with pytest.raises(Exception, match=re.escape(message)):
        Cascade.from_cross_encoder(classifier).distil(change(candidates), layers, settings=FEW)


def test_a_cascade_without_a_cross_encoders_classifier_is_refused(cascade, candidates):
    with pytest.raises(ValueError, match=re.escape("make the cascade by Cascade.from_cross_encoder(...)")):
        cascade.distil(candidates)
