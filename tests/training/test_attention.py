"""Attention in training on a CPU: Hugging Face's own but for the random numbers of dropout."""

import pandas as pd
import pytest
import torch
import transformers

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder
from pyterrier_cascade.training.attention import NAME, attention, fast_attention, random_steps
from tests import tiny

CPU = torch.device("cpu")
asks = pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) < 5, reason="transformers below 5 does not ask for an attention of ours"
)


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 60, (3, 40), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, 25:], mask[1, 3:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


@asks
@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("padded", [True, False])
def test_states_and_gradients_equal_hugging_face(tmp_path, family, padded):
    """In training mode with dropout at 0, padded and not."""
    model = transformers.AutoModel.from_pretrained(tiny.save(tmp_path, family, outputs=None)).train()
    for part in model.modules():
        for name in ("p", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    given = inputs()
    if not padded:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    real, found = given["attention_mask"].bool(), []
    for fast in (False, True):
        model.zero_grad()
        with fast_attention(model, CPU if fast else torch.device("meta")):
            assert model.config._attn_implementation == (NAME if fast else "sdpa")
            states = model(**given).last_hidden_state[real]
        states.pow(3).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((states.detach(), gradients))
    (theirs, their_gradients), (ours, our_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert our_gradients.keys() == their_gradients.keys() and len(ours) == int(real.sum())
    # Keys' biases have none but for rounding: what is added to all scores of a token changes nothing.
    largest = max(gradient.abs().max().item() for gradient in their_gradients.values())
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], rtol=1e-4, atol=1e-6 * largest, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_leaves_out_its_share_and_scales_the_rest(dtype):
    """With equal scores and values of one, a token gets (kept of 64)/64 / (1 - p) (p = 1/4: exact in both types)."""
    zeros, ones = torch.zeros(20, 4, 64, 8, dtype=dtype), torch.ones(20, 4, 64, 8, dtype=dtype)
    torch.manual_seed(0)
    found, nothing = attention(None, zeros, zeros, ones, None, dropout=0.25)
    assert found.shape == (20, 64, 4, 8) and found.dtype == dtype and nothing is None
    kept = found[..., 0].float() * 64 * 0.75
    assert (kept - kept.round()).abs().max() < (0.3 if dtype == torch.bfloat16 else 1e-4)
    n = 20 * 64 * 4
    # A token keeps 48 of 64 with a deviation of sqrt(12); the mean of n of them has sqrt(12 / n).
    assert abs(kept.mean().item() - 48) < 4 * (12 / n) ** 0.5
    assert abs(kept.std().item() - 12**0.5) < 0.15
    again, _ = attention(None, zeros, zeros, ones, None, dropout=0.25)
    assert not torch.equal(again, found)
    torch.manual_seed(0)
    torch.testing.assert_close(attention(None, zeros, zeros, ones, None, dropout=0.25)[0], found, rtol=0, atol=0)


def test_dropped_probabilities_have_no_gradient():
    value = torch.randn(2, 1, 16, 4, requires_grad=True)
    query, key = torch.randn(2, 2, 1, 16, 4)
    torch.manual_seed(3)
    found, _ = attention(None, query, key, value, None, dropout=0.5)
    torch.manual_seed(3)
    kept = (random_steps(torch.Size((2, 1, 16, 16))) >= 0).float()
    weights = (query @ key.transpose(-1, -2) / 2).softmax(-1) * kept * 2
    torch.testing.assert_close(found, (weights @ value).transpose(1, 2))
    (gradient,) = torch.autograd.grad(found[:, 5].sum(), value)
    torch.testing.assert_close(gradient, weights[:, :, 5, :, None].expand_as(gradient))
    assert (kept[:, :, 5] == 0).any() and 0.35 < kept.mean() < 0.65


def test_random_steps_are_even_and_independent():
    """Each of the four numbers of a draw is even over 16 bits, and none says anything of its neighbours."""
    torch.manual_seed(0)
    steps = random_steps(torch.Size((4, 50_001)))
    assert steps.shape == (4, 50_001) and steps.dtype == torch.int16
    flat = steps.flatten()[:200_000].view(-1, 4).float()
    assert flat.mean(0).abs().max() < 4 * 65_536 / 12**0.5 / 50_000**0.5
    assert flat.std(0).sub(65_536 / 12**0.5).abs().max() < 150
    assert (torch.corrcoef(flat.T) - torch.eye(4)).abs().max() < 0.02
    assert (steps.min().item(), steps.max().item()) == (-32_768, 32_767)


@asks
@pytest.mark.parametrize("ranker", [CrossEncoder, Cascade, DCBERT])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:.*did not learn")
def test_every_encoder_uses_it_during_a_training_only(ranker, fails, tiny_bert, monkeypatch):
    frame = pd.DataFrame(
        [("1", "what ship", "a", "the ship", 1), ("1", "what ship", "b", "the town", 0)],
        columns=["qid", "query", "docno", "text", "label"],
    )
    made = ranker.from_pretrained(tiny_bert, **({"layers": (1, 2)} if ranker is Cascade else {}))
    encoders = [p for p in made.model.loaded.module.modules() if getattr(p, "_supports_attention_backend", False)]
    asked = []

    def spy(module, *args, **kwargs):
        asked.append(kwargs.get("dropout", 0.0))
        if fails:
            raise RuntimeError("stopped")
        return attention(module, *args, **kwargs)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, NAME, spy)
    training = type(made.training)(epochs=1, precision="fp32", **({"frozen_epochs": 0} if ranker is DCBERT else {}))
    made = made(training=training)
    if fails:
        with pytest.raises(RuntimeError, match="stopped"):
            made.fit_candidates(frame)
    else:
        made.fit_candidates(frame)
    assert encoders and {part.config._attn_implementation for part in encoders} == {"sdpa"}
    assert set(asked) == {0.1}
