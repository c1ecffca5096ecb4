"""The Sequential Reranker (CT-6 to CT-8, CT-33)."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import CrossEncoder, SequentialReranker, Training
from tests import tiny


def _sequential():
    return SequentialReranker([CrossEncoder.from_pretrained("nowhere/a"), CrossEncoder.from_pretrained("nowhere/b")])


TestContract = transformer_test_class(_sequential)


@pytest.fixture
def models(tmp_path):
    return [CrossEncoder.from_pretrained(tiny.save(tmp_path / str(n), layers=n, seed=n)) for n in (1, 2, 4)]


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    words = ["ship", "town", "who", "founded", "launched", "the"]
    texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(10)]
    return pd.DataFrame({"qid": "q", "query": "what ship", "docno": [f"d{n}" for n in range(10)], "text": texts})


def test_each_model_reads_the_survivors(models, frame):
    out = SequentialReranker(models, alpha=0.5)(frame)
    scores = [model(frame).set_index("docno")["score"] for model in models]
    alive, expected = list(frame["docno"]), []
    for number, found in enumerate(scores):
        alive = sorted(alive, key=lambda docno, found=found: -found[docno])
        n = len(alive) - len(alive) // 2 if number < 2 else 0
        expected = alive[n:] + expected
        alive = alive[:n]
    assert out["docno"].tolist() == expected
    assert out["exit_layer"].tolist() == [4] * 3 + [2] * 2 + [1] * 5
    assert out["score"].tolist()[:3] == pytest.approx(scores[2][expected[:3]].tolist(), abs=1e-5)
    # CT-8: 10 run 1 layer, 5 another 2, 3 another 4.
    assert out["q_cost"].unique().tolist() == [10 + 5 * 2 + 3 * 4]
    assert out["q_cost_full"].unique().tolist() == [40]


def test_the_settings_of_a_cascade(models, frame):
    sequential = SequentialReranker(models)
    assert sequential(counts=(4, 2), exited="drop")(frame)["rank"].tolist() == [0, 1]
    assert sequential(plan=(1, 4), alpha=0.9)(frame)["exit_layer"].value_counts().to_dict() == {1: 9, 4: 1}
    with pytest.raises(ValueError, match=re.escape("plan=(1, 3), but there are heads at layers (1, 2, 4) only")):
        sequential(plan=(1, 3))(frame)


def test_of_an_encoder_saved_and_loaded(tmp_path, frame):
    source = tiny.save(tmp_path / "source", layers=6, outputs=None)
    sequential = SequentialReranker.from_pretrained(source, layers=(2, 6), models={"max_length": 32})
    rng = np.random.default_rng(0)
    labelled = frame.assign(label=rng.permutation([1] * 3 + [0] * 7))
    sequential.fit_candidates(labelled)
    assert [bool(model.model.fitted) for model in sequential.models] == [True, True]
    out = sequential(alpha=0.5)(frame)
    assert out["q_cost_full"].iloc[0] == 60 and out["q_cost"].iloc[0] == 10 * 2 + 5 * 6
    sequential.save_pretrained(str(tmp_path / "saved"))
    loaded = SequentialReranker.from_pretrained(str(tmp_path / "saved"), models={"max_length": 32}, alpha=0.5)
    assert_frame_equal(loaded(frame), out)
    assert pickle.loads(pickle.dumps(loaded)) == loaded and eval(repr(loaded)) == loaded
    assert SequentialReranker.from_pretrained(source).head_layers == (2, 3, 4, 5, 6)


def test_saved_in_the_place_of_another(models, tmp_path, frame):
    SequentialReranker(models).save_pretrained(str(tmp_path / "saved"))
    fewer = SequentialReranker([models[0].apart(), models[2].apart()])
    fewer.save_pretrained(str(tmp_path / "saved"))
    loaded = SequentialReranker.from_pretrained(str(tmp_path / "saved"), layers=(1, 4))
    assert_frame_equal(loaded(frame), fewer(frame))
    message = (
        "holds models of 1, 4 layers, so that layers=(1, 2, 4) cannot be; leave it out, use plan=, or give an enco"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        SequentialReranker.from_pretrained(str(tmp_path / "saved"), layers=(1, 2, 4))


def test_a_training_that_fails_leaves_all_models_as_they_were(models, frame, monkeypatch):
    labelled = frame.assign(label=[1] * 3 + [0] * 7)
    expected = SequentialReranker([model.apart() for model in models]).fit_candidates(labelled)
    sequential, fit = SequentialReranker(models), CrossEncoder.train
    before = sequential.fingerprint()

    def failing(self, *args):
        if self.model is models[1].model:
            raise KeyboardInterrupt
        return fit(self, *args)

    monkeypatch.setattr(CrossEncoder, "train", failing)
    with pytest.raises(KeyboardInterrupt):
        sequential.fit_candidates(labelled)
    assert [model.model.fitted for model in models] == [None] * 3 and sequential.fingerprint() == before
    monkeypatch.setattr(CrossEncoder, "train", fit)
    assert sequential.fit_candidates(labelled).fingerprint() == expected.fingerprint()


def test_each_model_has_a_folder_of_its_own(models, frame, tmp_path):
    training = Training(epochs=1, folder=str(tmp_path / "kept"))
    sequential = SequentialReranker([model(training=training) for model in models[:2]])
    sequential.fit_candidates(frame.assign(label=[1] * 3 + [0] * 7))
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["model-0", "model-1"]


@pytest.mark.parametrize(
    "other", [{"max_length": 16}, {"precision": "bf16"}, {"passages": "max"}, {"text_field": "docno"}]
)
def test_what_scores_depend_on_names_them(models, other):
    before = SequentialReranker(models).fingerprint()
    assert SequentialReranker([model(**other) for model in models]).fingerprint() != before


def test_bad_models(models, frame):
    with pytest.raises(ValueError, match=re.escape("models of (4, 1) layers: give them in ascending order, each once")):
        SequentialReranker([models[2], models[0]])(frame)
    with pytest.raises(ValueError, match="give one or more models that read the same text_field"):
        SequentialReranker([])
    with pytest.raises(ValueError, match="give one or more models that read the same text_field"):
        SequentialReranker([models[0], models[1](text_field="body")])
    with pytest.raises(ValueError, match=re.escape("alpha=1.5 is not a fraction")):
        SequentialReranker(models, alpha=1.5)
