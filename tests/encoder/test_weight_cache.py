"""Objects made from weights are made once, and again when the weights changed."""

import pytest
import torch

from pyterrier_cascade.encoder.weight_cache import WeightCache, weights_in


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def made_by(cache, key="sum"):
    return cache.get(key, lambda: [weight.sum().item() for module in cache.modules for weight in weights_in(module)])


def test_an_object_is_made_once_for_a_key(module):
    cache = WeightCache(module)
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
    cache = WeightCache(module)
    before = made_by(cache)
    change(module)
    after = made_by(cache)
    assert after != before and made_by(cache) is after


def test_the_weights_are_those_of_all_parts_and_a_missing_one_is_none(module):
    whole = torch.nn.Sequential(module, torch.nn.Linear(2, 1, bias=False), torch.nn.Sequential(torch.nn.LayerNorm(4)))
    whole.register_module("none", None)
    assert [id(one) for one in weights_in(whole)] == [id(one) for one in whole.parameters()]
    cache = WeightCache(whole)
    before = made_by(cache)
    whole.part = torch.nn.Linear(2, 2)
    assert len(made_by(cache)) == len(before) + 2


def test_some_keys_are_forgotten():
    cache = WeightCache()
    first = {key: made_by(cache, key) for key in ("int8", "fp32")}
    cache.forget(lambda key: key == "int8")
    assert made_by(cache, "fp32") is first["fp32"] and made_by(cache, "int8") is not first["int8"]


def test_weights_from_inference_mode_are_allowed():
    with torch.inference_mode():
        module = torch.nn.Linear(3, 2)
    cache = WeightCache(module)
    assert made_by(cache) is made_by(cache)
