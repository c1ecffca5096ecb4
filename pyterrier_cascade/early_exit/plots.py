"""Pictures of cascades, by matplotlib: a river of candidates, and quality against cost."""

from collections.abc import Sequence
from numbers import Real

import pandas as pd

from pyterrier_cascade import checks
from pyterrier_cascade.plots import new_axes

KEPT, DROPPED, POSITIVE = "#2b6ca3", "#b8bcc4", "#d1782a"


def quality_against_cost(sweep, measure: str, marked: Sequence, ax):
    """Draws a :class:`~pyterrier_cascade.cascade.sweep.Sweep` (CT-61) and returns the axes.

    Args:
        sweep: The sweep to draw.
        measure: The name of the measure.
        marked: Alphas, the same at every head, that are marked.
        ax: Where to draw, or None.
    """
    ax = new_axes(ax, (6.4, 4.2))
    cost = 100 * sweep.frame["RelativeCost"]
    ax.scatter(cost, sweep.frame[measure], s=9, color=DROPPED, label=f"{len(sweep)} settings")
    front = sweep.pareto(measure)
    ax.step(
        100 * front["RelativeCost"], front[measure], where="post", color=KEPT, linewidth=1.5, label="best at a cost"
    )
    # Behind a front, an alpha has as many costs as there are cuts.
    alphas = sweep.frame.get("alpha" if "k" not in sweep.frame else None, pd.Series(dtype=object))
    n_drops = max((len(alpha) for alpha in alphas if not isinstance(alpha, Real)), default=1)
    equal = {alpha if isinstance(alpha, Real) else alpha[0]: row for row, alpha in alphas.items()
             if isinstance(alpha, Real) or alpha == (alpha[0],) * n_drops}  # fmt: skip
    shown = [alpha for alpha in marked if alpha in equal]
    rows = sweep.frame.loc[[equal[alpha] for alpha in shown]]
    if shown:
        ax.scatter(
            100 * rows["RelativeCost"], rows[measure], s=46, color=POSITIVE, zorder=3, label="same alpha everywhere"
        )
    for alpha, (_, row) in zip(shown, rows.iterrows(), strict=True):
        ax.annotate(f"alpha={alpha}", (100 * row["RelativeCost"], row[measure]), (5, -12), textcoords="offset points")
    ax.axhline(sweep.full[measure], color="#444444", linewidth=0.8, linestyle=":", label="nothing dropped")
    ax.set_xlabel("cost relative to the full encoder (%)")
    ax.set_ylabel(measure)
    ax.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False, columnspacing=1.2)
    return ax


def river(explained: pd.DataFrame, qid: str | None = None, *, relevant: Sequence[str] = (), ax=None):
    """Draws the candidates of a question on their way through the layers, and returns the axes.

    Each line is a candidate. It goes from the candidate's place at one head to its place at the next, and ends in a
    cross at the head that drops it.

    Args:
        explained: The frame that ``cascade.explain(candidates)`` returns.
        qid: The question; not needed if there is only one.
        relevant: Docnos that are drawn in another colour.
        ax: Where to draw; a new figure unless given.
    """
    qids = explained["qid"].unique()
    if qid is None:
        if len(qids) != 1:
            raise ValueError(f"there are {len(qids)} questions; give the qid of one, such as {list(qids[:3])}")
        qid = qids[0]
    rows = explained[explained["qid"] == qid]
    if not len(rows):
        raise ValueError(f"question {checks.shown(qid)} is not among the {len(qids)} explained")
    ax = new_axes(ax, (6.4, 4.8))
    layers = sorted(rows["layer"].unique())
    for docno, way in rows.groupby("docno", sort=False):
        way = way.sort_values("layer")
        stays = bool(way["kept"].iloc[-1])
        positive = docno in set(relevant)
        color = POSITIVE if positive else KEPT if stays else DROPPED
        ax.plot(
            way["layer"], way["place"] + 1, color=color, linewidth=2 if positive else 1, zorder=2 + positive,
            solid_capstyle="round",
        )  # fmt: skip
        end = way.iloc[-1]
        ax.plot(
            end["layer"], end["place"] + 1, marker="." if stays else "x", color=color, markersize=5,
            zorder=2 + positive,
        )  # fmt: skip
    for layer, at in rows.groupby("layer"):
        ax.annotate(f"{len(at)}", (layer, 0), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    ax.set_xticks(layers)
    ax.set_xlim(layers[0] - 0.7, layers[-1] + 0.7)
    ax.set_ylim(rows["place"].max() + 2, 0)
    ax.set_xlabel("layer (above: candidates that came to it)")
    ax.set_ylabel("place")
    query = str(rows["query"].iloc[0])
    ax.set_title(query if len(query) <= 70 else f"{query[:69]}…", fontsize=10, pad=18)
    handles = [ax.plot([], [], color=color)[0] for color in (KEPT, DROPPED, POSITIVE)]
    names = ["to the last head", "dropped", "relevant"]
    shown = slice(None, 3 if len(relevant) else 2)
    ax.legend(handles[shown], names[shown], fontsize=8, loc="lower right")
    return ax


def reliability_curve(found, label: str | None = None, ax=None):
    """Draws a :class:`~pyterrier_cascade.early_exit.reliability.Reliability` and returns the axes.

    Each mark is a bin, and the larger it is, the more candidates the bin has.

    Args:
        found: The bins.
        label: The name of the curve, for the legend.
        ax: Where to draw, or None.
    """
    ax = new_axes(ax, (4.8, 4.4))
    if not ax.lines:
        ax.plot([0, 1], [0, 1], color="#444444", linewidth=0.8, linestyle=":")
        ax.set_xlabel("probability that the ranker gives")
        ax.set_ylabel("share of candidates that are relevant")
        ax.set_aspect("equal")
    rows = found.frame
    (line,) = ax.plot(rows["probability"], rows["relevant"], linewidth=1.2, label=label)
    ax.scatter(rows["probability"], rows["relevant"], s=8 + 90 * rows["count"] / rows["count"].max(), alpha=0.6,
               color=line.get_color())  # fmt: skip
    if label is not None:
        ax.legend(fontsize=8, frameon=False, loc="upper left")
    return ax
