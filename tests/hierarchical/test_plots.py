"""The plots show the values that they are given."""

import pandas as pd
import pytest

from pyterrier_cascade.hierarchical import plots

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def test_attention():
    weights = pd.DataFrame([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]], ["who", "$x$", "?"], ["the", "$y"])
    ax = plots.attention(weights)
    assert ax.images[0].get_array().tolist() == weights.to_numpy().tolist()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["who", "$x$", "?"]
    ax.figure.canvas.draw()


def test_curves():
    histories = {
        "PRI": pd.DataFrame({"epoch": [1.0, 2.0], "loss_list": [0.5, 0.25]}),
        "CA(pair)": pd.DataFrame({"epoch": [1.0], "loss_pair": [0.5]}),
    }
    ax = plots.curves(histories)
    assert [line.get_label() for line in ax.lines] == ["PRI"]
    assert ax.lines[0].get_ydata().tolist() == [0.5, 0.25]
    with pytest.raises(ValueError, match="no training has a column 'dev_map'; use one of epoch, loss_list, loss_pair"):
        plots.curves(histories, "dev_map")
