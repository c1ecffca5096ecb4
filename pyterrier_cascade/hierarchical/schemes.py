"""Who feeds whom: the eleven models and the ablations as a table (HR-10, HR-20 to HR-28)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

LEVELS = ("point", "pair", "list")


@dataclass(frozen=True)
class Scheme:
    """A scheme as equations: the enhanced features of a level are those of the levels that feed it, then its own.

    Attributes:
        feeds: For each level in the order of computing: the levels whose enhanced features come before its own.
        main: The level that is scored by.
        objectives: The loss of each level: its own, but for the ablation "all list".
    """

    feeds: Mapping[str, tuple[str, ...]]
    main: str
    objectives: Mapping[str, str]

    def needed(self, level: str) -> list[str]:
        """Returns the levels without which one cannot be computed, itself last."""
        found = [one for feeder in self.feeds[level] for one in self.needed(feeder)]
        return [*dict.fromkeys(found), level]

    def widths(self, own: int) -> dict[str, int]:
        """Returns how wide each level's enhanced features are (HR-24).

        Args:
            own: The width of a level's own features.
        """
        found = {}
        for level, feeders in self.feeds.items():
            found[level] = sum(found[feeder] for feeder in feeders) + own
        return found


# The equations 11 to 15: r̂_x = [r̂_y; ...; r_x] for y in the row of x.
EQUATIONS = {
    ("CA", "point"): {"point": ()},
    ("CA", "pair"): {"pair": ()},
    ("CA", "list"): {"list": ()},
    ("MTL", "point"): {"point": (), "pair": (), "list": ()},
    ("MTL", "pair"): {"point": (), "pair": (), "list": ()},
    ("MTL", "list"): {"point": (), "pair": (), "list": ()},
    ("RI", "point"): {"pair": (), "list": (), "point": ("pair", "list")},
    ("RI", "pair"): {"point": (), "list": (), "pair": ("point", "list")},
    ("RI", "list"): {"point": (), "pair": (), "list": ("point", "pair")},
    ("PRI", "list"): {"point": (), "pair": ("point",), "list": ("pair",)},
    ("PRI", "point"): {"list": (), "pair": ("list",), "point": ("pair",)},
    # Ablations (HR-28).
    ("PRI w/o point", "list"): {"pair": (), "list": ("pair",)},
    ("PRI w/o pair", "list"): {"point": (), "list": ("point",)},
    ("PRI all list", "list"): {"point": (), "pair": ("point",), "list": ("pair",)},
}

MODELS = tuple(key for key in EQUATIONS if "PRI " not in key[0])
"""The eleven models of the paper's first table (HR-33)."""
ABLATIONS = tuple(key for key in EQUATIONS if "PRI " in key[0])
"""Those of its second (HR-34)."""


def scheme(name: str, level: str) -> Scheme:
    """Returns a scheme by its name and the level that is scored by, such as ``"PRI"`` and ``"list"``."""
    if (name, level) not in EQUATIONS:
        raise ValueError(
            f"there is no {name}({level}); there are " + ", ".join(f"{known}({by})" for known, by in EQUATIONS)
        )
    feeds = EQUATIONS[name, level]
    objectives = {one: "list" if name == "PRI all list" else one for one in feeds}
    return Scheme(MappingProxyType(feeds), level, MappingProxyType(objectives))
