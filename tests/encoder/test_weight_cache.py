"""Objects made from weights are made once, and again when the weights changed."""

import pytest
import torch

from pyterrier_cascade.encoder.weight_cache import WeightCache


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def made_by(cache, key="sum"):
    return cache.get(key, lambda: [w.sum().item() for w in cache.weights()])


def test_an_object_is_made_once_for_a_key(module):
    cache = WeightCache(module.parameters)
    assert made_by(cache) is made_by(cache)
    assert made_by(cache, "other") is not made_by(cache)


def in_place(module):
    with torch.no_grad():
        module.weight.add_(1)


def step(module):
    module(torch.ones(1, 3)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def load(module):
    module.load_state_dict({name: tensor + 1 for name, tensor in module.state_dict().items()})


def replace(module):
    module.weight = torch.nn.Parameter(module.weight + 1)


@pytest.mark.parametrize("change", [in_place, step, load, replace])
def test_an_object_is_made_again_when_weights_change(module, change):
    cache = WeightCache(module.parameters)
    before = made_by(cache)
    change(module)
    after = made_by(cache)
    assert after != before and made_by(cache) is after


def test_some_keys_are_forgotten():
    cache = WeightCache(lambda: [])
    first = {key: made_by(cache, key) for key in ("int8", "fp32")}
    cache.forget(lambda key: key == "int8")
    assert made_by(cache, "fp32") is first["fp32"] and made_by(cache, "int8") is not first["int8"]


def test_weights_from_inference_mode_are_allowed():
    with torch.inference_mode():
        weight = torch.ones(2)
    cache = WeightCache(lambda: [weight])
    assert made_by(cache) is made_by(cache)
