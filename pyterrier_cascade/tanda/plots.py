"""Pictures of trainings, by matplotlib."""

import pandas as pd

from pyterrier_cascade.axes import axes


def course(history: pd.DataFrame, ax=None):
    """Draws development MAP over epochs, a line for each step, and returns the axes.

    Args:
        history: ``step``, ``epoch``, ``dev_map``.
        ax: Where to draw; a new figure unless given.
    """
    ax = axes(ax, (6.4, 4))
    for name, rows in history.dropna(subset="dev_map").groupby("step", sort=False):
        ax.plot(rows["epoch"], rows["dev_map"], marker="o", markersize=4, label=name)
    ax.set_xlabel("epoch of the step")
    ax.set_ylabel("MAP on the target's development questions")
    ax.legend(frameon=False)
    return ax
