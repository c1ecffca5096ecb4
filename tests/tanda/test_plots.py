"""Plots of trainings."""

import pandas as pd
import pytest

from pyterrier_cascade.tanda.plots import course


def test_a_line_for_each_training():
    """Of two models in one step, and of a step that was done twice; a row without MAP is passed over."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    rows = [("transfer", 1, 2, 0.1), ("transfer", 2, 2, 0.2), ("transfer", 1, 3, 0.3), ("transfer", 2, 3, None)]
    rows += [("adapt", 1, 2, 0.4), ("adapt", 1, 3, 0.5), ("adapt", 2, 3, 0.6)]
    history = pd.DataFrame(rows, columns=["step", "epoch", "layers", "dev_map"])
    drawn = {line.get_label(): line.get_ydata().tolist() for line in course(history).lines}
    assert drawn == {
        "transfer, 2 layers": [0.1, 0.2], "transfer, 3 layers": [0.3],
        "adapt, 2 layers": [0.4], "adapt, 3 layers": [0.5, 0.6],
    }  # fmt: skip
    stopped = pd.DataFrame(
        {"step": ["transfer"] * 2 + ["adapt"] * 2, "epoch": [0.2, 0.4, 1, 2], "dev_map": [1, 2, 3, 4]}
    )
    assert [line.get_ydata().tolist() for line in course(stopped).lines] == [[1, 2], [3, 4]]
    twice = pd.DataFrame({"step": "adapt", "epoch": [1, 2, 1, 2], "dev_map": [0.1, 0.2, 0.3, 0.4]})
    assert [line.get_ydata().tolist() for line in course(twice).lines] == [[0.1, 0.2], [0.3, 0.4]]
