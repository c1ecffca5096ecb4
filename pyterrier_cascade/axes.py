"""Where plots are drawn, by matplotlib, which only they need."""


def axes(ax, size: tuple[float, float]):
    """Returns the axes that were given, or, without any, those of a new figure.

    Args:
        ax: Axes or None.
        size: Width and height of a new figure in inches.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "pyterrier_cascade[demo]"') from error
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
