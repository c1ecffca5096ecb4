import pytest
import torch

from tests.dcbert.fresh import logits, made


@pytest.mark.parametrize(
    "parts",
    [{"joint_layers": 2}, {"variant": "linear"}, {"variant": "lstm"}, {"variant": "one_way", "joint_layers": 2}],
)
def test_a_score_depends_neither_on_pads_nor_on_neighbours(tmp_path, parts):
    module, tokenizer, _ = made(tmp_path, **parts)
    together = logits(module, tokenizer, [(0, 0), (0, 1), (1, 1), (1, 2)])
    alone = logits(module, tokenizer, [(0, 0)], ["what ship launched"], ["x y z"])
    torch.testing.assert_close(together[[3]], alone, atol=1e-6, rtol=0)
    assert len(set(together.tolist())) == 4
