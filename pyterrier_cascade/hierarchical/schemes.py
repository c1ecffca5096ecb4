"""The schemes: which level reads the features of which other levels (HR-10, HR-20 to HR-28)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

LEVELS = ("point", "pair", "list")

EQUATIONS = {
    **{("CA", level): {level: ()} for level in LEVELS},
    **{("MTL", level): dict.fromkeys(LEVELS, ()) for level in LEVELS},
    ("RI", "point"): {"pair": (), "list": (), "point": ("pair", "list")},
    ("RI", "pair"): {"point": (), "list": (), "pair": ("point", "list")},
    ("RI", "list"): {"point": (), "pair": (), "list": ("point", "pair")},
    ("PRI", "list"): {"point": (), "pair": ("point",), "list": ("pair",)},
    ("PRI", "point"): {"list": (), "pair": ("list",), "point": ("pair",)},
    # The ablations (HR-28).
    ("PRI w/o point", "list"): {"pair": (), "list": ("pair",)},
    ("PRI w/o pair", "list"): {"point": (), "list": ("point",)},
    ("PRI all list", "list"): {"point": (), "pair": ("point",), "list": ("pair",)},
}
"""Equations 11 to 15 by scheme and scoring level: ``{"x": ("y", "z")}`` means r̂_x = [r̂_y; r̂_z; r_x]."""

MODELS = tuple(key for key in EQUATIONS if "PRI " not in key[0])
"""The eleven models of the paper's table 1 (HR-33)."""
ABLATIONS = tuple(key for key in EQUATIONS if "PRI " in key[0])
"""The ablations of the paper's table 2 (HR-34)."""


@dataclass(frozen=True)
class Scheme:
    """The equations of a scheme: a level's enhanced features are those of the levels that feed it, then its own.

    Attributes:
        feeds: For each level, in the order of computation, the levels whose enhanced features it reads.
        main: The level that gives the score.
        objectives: The loss of each level. A level is trained by its own loss, except in the ablation "all list".
    """

    feeds: Mapping[str, tuple[str, ...]]
    main: str
    objectives: Mapping[str, str]

    @classmethod
    def named(cls, name: str, level: str) -> "Scheme":
        """Returns a scheme by its name and its scoring level, such as ``"PRI"`` and ``"list"``."""
        if (name, level) not in EQUATIONS:
            known = ", ".join(f"{scheme}({main})" for scheme, main in EQUATIONS)
            raise ValueError(f"there is no {name}({level}); use one of {known}")
        feeds = EQUATIONS[name, level]
        objectives = {one: "list" if name == "PRI all list" else one for one in feeds}
        return cls(MappingProxyType(feeds), level, MappingProxyType(objectives))

    def needed(self, level: str) -> list[str]:
        """Returns the levels that must be computed for one level, itself last."""
        found = [one for feeder in self.feeds[level] for one in self.needed(feeder)]
        return [*dict.fromkeys(found), level]

    def widths(self, own: int) -> dict[str, int]:
        """Returns the width of each level's enhanced features (HR-24).

        Args:
            own: The width of a level's own features.
        """
        features = {level: torch.empty(0, own) for level in self.feeds}
        return {level: enhanced.shape[1] for level, enhanced in self.enhanced(features).items()}

    def enhanced(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns each level's enhanced features (eq. 11 to 15); gradients flow through all of them (HR-26).

        Args:
            own: The features r of each level that is wanted or that feeds a wanted one, ``(n, features)``.
        """
        found = {}
        for level, feeders in self.feeds.items():
            if level in own:
                found[level] = torch.cat([*(found[feeder] for feeder in feeders), own[level]], -1)
        return found
