"""Encoders whose linear maps are in int8."""

import numpy as np
import pytest

from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.int8 import Int8Linear, LowLinear, has_int8
from pyterrier_cascade.encoder.int8_executor import int8_executor
from tests.encoder import spans

pytestmark = pytest.mark.skipif(not has_int8(), reason="needs a CPU with VNNI, and oneDNN's int8 in torch")

INPUTS = spans.inputs([3, 40, 40, 7, 25, 2, 26, 27, 90] * 5)


@pytest.mark.parametrize("precision", ["int8", "mixed"])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_scores_are_near_those_in_fp32(encoder, family, precision):
    exact = run(spans.executor(encoder(family), "mean"), INPUTS)
    made = int8_executor(encoder(family), spans.heads("mean"), precision, INPUTS)
    assert made.precision.startswith(f"{precision} and ")
    near = run(made, INPUTS)
    assert 0 < np.abs(near - exact).max() < 0.5
    assert all(np.corrcoef(near[:, head], exact[:, head])[0, 1] > 0.995 for head in range(3))
    low = [part for layer in made.encoder.layers for part in layer.modules() if isinstance(part, LowLinear)]
    whole = [part for layer in made.encoder.layers for part in layer.modules() if isinstance(part, Int8Linear)]
    assert len(low) == (0 if precision == "int8" else (len(low) + len(whole)) // 6) and len(whole) >= 16


def test_a_score_depends_on_no_other_input(encoder):
    """Scales are fixed by the calibration, so only the rounding of attention in bf16 differs between chunks."""
    made = int8_executor(encoder("bert"), spans.heads("cls"), "int8", INPUTS)
    every = run(made, INPUTS)
    alone = np.concatenate([run(made, INPUTS.select(np.array([row]))) for row in range(9)])
    np.testing.assert_allclose(alone, every[:9], atol=0.05, rtol=0)


def test_layers_above_the_last_head_are_left_alone(encoder):
    made = int8_executor(encoder("bert"), spans.heads("cls", layers=(1, 2)), "int8", INPUTS)
    kinds = [type(layer.down) for layer in made.encoder.layers]
    assert kinds == [Int8Linear, Int8Linear, LowLinear, LowLinear]
    assert np.isfinite(run(made, INPUTS)).all()


def test_users_weights_stay(encoder):
    before = {name: weight.clone() for name, weight in encoder("bert").state_dict().items()}
    int8_executor(encoder("bert"), spans.heads("cls"), "mixed", INPUTS)
    assert all((weight == before[name]).all() for name, weight in encoder("bert").state_dict().items())
