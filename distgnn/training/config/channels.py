"""Settings of what ranks send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from distgnn.settings.fields import flag
from distgnn.training.config.presets import PRESETS


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """Settings of what ranks send each other.

    Strategies that are None are as the preset says; a whole `TrainConfig` has none left, and holds
    canonical words.
    """

    GROUP: ClassVar[str] = "what ranks send each other"

    preset: str | None = flag(
        None,
        f"published system, in place of --halo and --weights: {', '.join(PRESETS)} (default: none)",
        metavar="NAME",
        choices=tuple(PRESETS),
        is_free=True,
        is_optional=True,
        is_predicted=True,
    )
    halo: str | None = flag(
        None,
        "when rows travel, what they are sent as, and what is kept of them (see "
        "examples/strategies): exact, bf16, int8, int4, int2 or int1, rounded at random, or to the "
        "nearest as in 'int8(round=near)'; fwd:int8+bwd:int4 gives each "
        "direction of the pass its own (default: exact)",
        metavar="STRATEGY",
        is_predicted=True,
        is_common=True,
    )
    weights: str | None = flag(
        None,
        "what ranks tell each other about weights (words in examples/strategies): gradients are "
        "added up as they are with sum, or in bf16, int8, int4, int2 or int1, or as auto chooses "
        "while the run trains; with every(K)+mean each rank trains a model of its own, and all get "
        "the mean of models after every K steps; with +int8 in a code, with +pairs or +groups(G) "
        "of 2 or G ranks, with lag(L) in the background (default: sum)",
        metavar="STRATEGY",
        is_predicted=True,
    )
