"""Pictures of trainings, by matplotlib."""

import pandas as pd


def course(history: pd.DataFrame, ax=None):
    """Draws development MAP over epochs, a line for each step, and returns the axes.

    Args:
        history: ``step``, ``epoch``, ``dev_map``.
        ax: Where to draw; a new figure unless given.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "pyterrier_cascade[demo]"') from error
    if ax is None:
        ax = plt.subplots(figsize=(6.4, 4), layout="constrained")[1]
    for name, rows in history.dropna(subset="dev_map").groupby("step", sort=False):
        ax.plot(rows["epoch"], rows["dev_map"], marker="o", markersize=4, label=name)
    ax.set_xlabel("epoch of the step")
    ax.set_ylabel("MAP on the target's development questions")
    ax.legend(frameon=False)
    return ax
