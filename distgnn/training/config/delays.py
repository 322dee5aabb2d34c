"""Settings of when rows travel between ranks, and when they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from distgnn.settings.fields import SHARE, Bound, at_least, flag

_STRENGTH = Bound("at least 0 and at most 1", lambda value: 0 <= value <= 1)


@dataclass(frozen=True, kw_only=True)
class DelaySettings:
    """Times at which rows travel between ranks and are used.

    A setting that is None is as the algorithm or the preset says; a whole `TrainConfig` has none.
    """

    GROUP: ClassVar[str] = "when ranks send it"

    algorithm: str = flag(
        "cd-0",
        "cd-0: synchronous; cd-R: R bins, delay R; 0c: nothing travels (default: cd-0)",
        in_presets=True,
        is_predicted=True,
    )
    bins: int | None = flag(
        None,
        "1/B of the rows travels per epoch (default: R)",
        at_least(1),
        metavar="B",
        is_predicted=True,
    )
    delay: int | None = flag(
        None,
        "epochs from sending a row to using it (default: R)",
        at_least(0),
        metavar="D",
        is_predicted=True,
    )
    delay_cache: bool = flag(
        True,
        "keep a row's last value between its turns (off: the paper's rule; default: on)",
        is_predicted=True,
    )
    gradient_cache: bool | None = flag(
        None,
        "the same for gradients that travel back (default: as --delay-cache)",
        is_predicted=True,
    )
    smoothing: float = flag(
        0.0,
        "received = G * received + (1 - G) * new, corrected for its start (default: 0)",
        SHARE,
        metavar="G",
        is_predicted=True,
    )
    gradient_smoothing: float | None = flag(
        None,
        "the same for gradients that travel back (default: as --smoothing)",
        SHARE,
        metavar="G",
        is_predicted=True,
    )
    warm_up_epochs: int = flag(
        0,
        "synchronous epochs before the delays begin (default: %(default)s)",
        at_least(0),
        metavar="N",
        is_predicted=True,
    )
    reweight_loss: bool = flag(
        False, "0c: weigh vertices by local/global in-degree", in_presets=True
    )
    coverage_correction: float = flag(
        0.0,
        "0c: weigh vertices by 1 - S + S / C, with C their local/global in-degree (default: 0)",
        _STRENGTH,
        metavar="S",
        in_presets=True,
    )
    cut_every: int | None = flag(
        None,
        "of --cuts: epochs on one cut before the next (default: 10)",
        at_least(1),
        metavar="K",
        is_optional=True,
    )
    overlap: bool = flag(
        True,
        "off: cd-0 waits for rows as soon as it has sent its own, to measure what is hidden "
        "(same results; default: on)",
        is_free=True,
    )
