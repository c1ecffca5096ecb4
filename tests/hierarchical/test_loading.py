"""Models that are built, loaded from folders, described, and made ready for a training."""

import json
import re

import numpy as np
import pytest
import torch

from pyterrier_cascade import HierarchicalRanker
from pyterrier_cascade.hierarchical.loading import HierarchicalModel, build, load
from pyterrier_cascade.model import LoadedModel, TrainedOn
from tests.hierarchical.questions import SMALL, ranker, vector_file

RECORD = TrainedOn(2, 10, 2, "HierarchicalTraining()")


def test_a_seed_draws_the_weights_and_nothing_else():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (build("PRI", "list", SMALL, seed=seed).encoding.weight for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.rand(1), expected)


def test_a_fresh_model():
    model = load("fresh", "PRI", "list", None, SMALL)
    assert isinstance(model, LoadedModel) and model.trained_on is None and model.executors is None
    assert model.untrained == "PRI(list) is fresh and knows no words" and model.full_layers == 1
    assert model.n_parameters == sum(parameter.numel() for parameter in model.module.parameters())


def test_a_model_describes_itself():
    model = load("fresh", "PRI", "list", None, SMALL)
    model.prepare_training(["a ship", "the ship"], seed=0)
    model.mark_trained(RECORD)
    found = json.loads(json.dumps(model.describe()))
    assert (found["scheme"], found["level"], found["vectors"], found["words"]) == ("PRI", "list", None, 3)
    assert found["architecture"]["channels"] == SMALL.channels
    assert found["trained_on"]["questions"] == 2 and model.untrained is None


def test_the_record_of_a_training_is_saved(tmp_path):
    first = ranker("CA", "point")
    first.model.loaded.prepare_training(["a ship"], seed=0)
    first.model.loaded.mark_trained(RECORD)
    first.save_pretrained(str(tmp_path))
    found = load(str(tmp_path))
    assert found.trained_on == RECORD and found.untrained is None


def test_each_different_query_is_read_once():
    model = load("fresh", "PRI", "list", None, SMALL)
    model.prepare_training(["a ship", "the town"], seed=0)
    pairs = model.pairs(["the ship", "a", "the ship"], ["a town", "", "mill"])
    assert len(pairs) == 3 and pairs.questions.ids.tolist() == [3, 2, 1] and pairs.question.tolist() == [0, 1, 0]
    assert pairs.answers.ids.tolist() == [1, 4, 0, 0]


def test_words_are_taken_from_a_file_of_vectors(tmp_path):
    model = load("fresh", "PRI", "list", vector_file(tmp_path, width=12), SMALL)
    module = model.prepare_training(["the unknown ship"], seed=0)
    assert module is model.module and module.architecture.embedding_width == 12
    assert list(module.vectors.numbers)[:2] == ["the", "ship"] and len(module.vectors.tuned) == 3
    assert model.tokenizer(["unknown ship"]).ids.tolist() == [0, 2]
    assert model.tokenizer(["rare"]).ids.item() > 2


def test_scores_do_not_depend_on_the_budget():
    model = HierarchicalModel(build("PRI", "list", SMALL), "is fresh")
    model.prepare_training(["a ship", "the town"], seed=0)
    pairs, done = model.pairs(["the ship"] * 9, ["a town the " * n for n in range(9)]), []
    expected = model.score(pairs, progress=done.append)
    assert sum(done) == 9 and np.ptp(expected) > 1e-4
    np.testing.assert_allclose(model.score(pairs, budget=3), expected, rtol=0, atol=1e-6)


def config_of(kind: str):
    return lambda folder: (folder / "config.json").write_text(json.dumps({"model_type": kind}))


def with_another_vocabulary(folder) -> None:
    ranker().save_pretrained(str(folder))
    (folder / "vocab.txt").write_text("one\n")


@pytest.mark.parametrize(
    ("fill", "error", "message"),
    [
        (lambda folder: None, FileNotFoundError, "has no config.json; give a folder that save_pretrained wrote"),
        (config_of("bert"), ValueError, "holds a model of type 'bert', not 'hierarchical_ranker'; give a folder"),
        (
            config_of("cascade_transformer"),
            ValueError,
            "holds a Cascade, not a HierarchicalRanker; use Cascade.from_pretrained",
        ),
        (with_another_vocabulary, ValueError, "has vectors for 0 words, but its vocabulary has 1; save it again"),
    ],
    ids=["empty", "bert", "cascade", "vocabulary"],
)
def test_bad_folders(fill, error, message, tmp_path, results):
    fill(tmp_path)
    with pytest.raises(error, match=re.escape(message)):
        HierarchicalRanker.from_pretrained(str(tmp_path))(results)


def test_a_folder_that_is_missing(results):
    with pytest.raises(
        FileNotFoundError,
        match=re.escape("there is no folder './nowhere'; give one with a config.json, or a name on"),
    ):
        HierarchicalRanker.from_pretrained("./nowhere")(results)
