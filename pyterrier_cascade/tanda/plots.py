"""Plots of a recipe's trainings, drawn by matplotlib."""

import pandas as pd

from pyterrier_cascade.plots import new_axes


def course(history: pd.DataFrame, ax=None):
    """Draws development MAP over epochs, with a line for each training of each step, and returns the axes.

    Args:
        history: A frame with ``step``, ``epoch`` and ``dev_map``, and with ``layers`` if steps trained several models.
        ax: The axes to draw on; a new figure unless given.
    """
    ax = new_axes(ax, (6.4, 4))
    measured = history.dropna(subset="dev_map")
    names = [name for name in ("step", "layers") if name in measured]
    begins = measured[names].ne(measured[names].shift()).any(axis=1) | measured["epoch"].le(measured["epoch"].shift())
    for _, rows in measured.groupby(begins.cumsum()):
        first = rows.iloc[0]
        name = f"{first['step']}, {first['layers']} layers" if "layers" in rows else first["step"]
        ax.plot(rows["epoch"], rows["dev_map"], marker="o", markersize=4, label=name)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("epoch of the step")
    ax.set_ylabel("MAP on the target's development questions")
    ax.legend(frameon=False)
    return ax
