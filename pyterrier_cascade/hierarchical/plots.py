"""Plots of attention weights and of the course of trainings."""

from collections.abc import Mapping

import pandas as pd

from pyterrier_cascade.plots import new_axes


def attention(weights: pd.DataFrame, ax=None):
    """Draws how much each word (row) attends to each other word (column), and returns the axes.

    Args:
        weights: One of the two frames that ``ranker.attention(question, answer)`` returns.
        ax: Where to draw; a new figure unless given.
    """
    n_rows, n_columns = weights.shape
    ax = new_axes(ax, (1.5 + 0.42 * n_columns, 1.2 + 0.32 * n_rows))
    ax.imshow(weights.to_numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    # A $ in a word begins no formula.
    ax.set_xticks(range(n_columns), weights.columns, rotation=60, ha="right", parse_math=False)
    ax.set_yticks(range(n_rows), weights.index, parse_math=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def curves(histories: Mapping[str, pd.DataFrame], column: str = "loss_list", ax=None):
    """Draws a column of several trainings over epochs, as in the paper's figure 4 (HR-35), and returns the axes.

    Args:
        histories: The name of each training, and the ``history`` of its ranker.
        column: The column that is drawn, such as ``"loss_list"``, ``"loss"`` or ``"dev_map"``; a training without it
            is left out.
        ax: Where to draw; a new figure unless given.
    """
    ax = new_axes(ax, (6.4, 4))
    drawn = {name: history for name, history in histories.items() if column in history.columns}
    if not drawn:
        known = sorted({name for history in histories.values() for name in history.columns})
        raise ValueError(f"no training has a column {column!r}; use one of {', '.join(known)}")
    for name, history in drawn.items():
        ax.plot(history["epoch"], history[column], marker="o", markersize=3, label=name)
    ax.set_xlabel("epoch")
    ax.set_ylabel(column.replace("loss_list", "list loss in training").replace("dev_map", "MAP on development"))
    ax.legend(frameon=False)
    return ax
