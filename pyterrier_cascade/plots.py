"""Axes to draw on, by matplotlib, which only plots need."""

from pyterrier_cascade.optional import require


def new_axes(ax, size: tuple[float, float]):
    """Returns the axes that were given, or the axes of a new figure where none were given.

    Args:
        ax: Axes or None.
        size: Width and height of a new figure in inches.
    """
    pyplot = require("demo", "matplotlib.pyplot", purpose="plots")
    return pyplot.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
