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
        "what gradients of large weights are sent as while ranks add them up: sum (as they are), "
        "bf16, int8, int4, int2 or int1, as with --halo, or auto, which chooses while the run "
        "trains; or every(K)+mean: each rank trains "
        "a model of its own, and after every K steps all get the mean of weights and moments, or "
        "with +own-moments of weights alone; with +pairs or +groups(G) it is the mean of 2 or G "
        "ranks, drawn for each merge, or with groups(G,order=tournament) or order=grid in turns; "
        "every(K)+int8+mean finds the mean from how models changed, told in a code; "
        "with +ring each rank mixes its model with those of two neighbors, which may be told in a "
        "code as in every(1)+ring+int8; "
        "lag(L) finds a mean in the background, for models to move to L steps later: corrected by "
        "all of the way, lerp(A) or elastic(A) by a share of it, momentum(E) to a mean that moves "
        "on; "
        "every(K,for=S) also merges after the S steps that follow each K; +travel(E) moves K every "
        "E epochs by the accuracy that models lose on vertices of other ranks; "
        "changed-gradient(D) in place of every(K) merges once the "
        "smoothed squared norm of the gradient of a rank changes by more than a share of D, or by "
        "more than in NN percent of the last 20 steps with changed-gradient(qNN); with vote=half, "
        "or vote=F for a share F, of so many of them, with vote=mean of all on average; or "
        "changed(S): values of gradients are added up once they would move a weight by a share of "
        "S, or with decay=sqrt of S over the root of the steps; or qadam(N)+int8: after N steps "
        "of Adam its first moment is summed in a code, and its second rests; +machines(L) adds "
        "gradients up as they are among each L ranks in a row, and then in a code between these "
        "machines (default: sum)",
        metavar="STRATEGY",
        is_predicted=True,
    )
