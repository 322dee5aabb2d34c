"""Which settings of delays go together, named by their flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.training.config.settings import TrainConfig

# More would be index lists of a row or two each.
_MAX_BINS = 4096


def check_delays(config: TrainConfig) -> None:
    """Refuse settings of delays that are not allowed, contradict each other, or have no effect.

    Args:
        config: A run, resolved.

    Raises:
        InputError: With the flag to change.
    """
    rule = config.delays
    for flag, count, least in (
        ("--bins", rule.num_bins, 1),
        ("--delay", rule.delay, 0),
        ("--warm-up-epochs", rule.warm_up_epochs, 0),
    ):
        if count < least:
            raise InputError(f"{flag} must be at least {least}, got {count}")
    for flag, share in _smoothings(config):
        if not 0 <= share < 1:
            raise InputError(f"{flag} must be at least 0 and below 1, got {share}")
    if not config.overlap and config.algorithm != "cd-0":
        raise InputError(
            f"--overlap off has an effect with --algorithm cd-0 only, got {config.algorithm}; drop "
            "one of the two"
        )
    if config.algorithm in ("0c", "cd-0"):
        _check_nothing_is_given(config)
        return
    if rule.is_synchronous:
        raise InputError("--bins 1 --delay 0 delays nothing; use --algorithm cd-0")
    if config.labels_as_input:
        raise InputError(
            f"--labels-as-input {config.labels_as_input} would let rows that --algorithm "
            f"{config.algorithm} delays hold labels that the loss asks for by now; use cd-0 or 0c"
        )
    if config.recompute:
        raise InputError(
            f"--recompute would read other delayed rows than --algorithm {config.algorithm} "
            "did before; use cd-0 or 0c"
        )
    if 0 < config.epochs <= rule.warm_up_epochs:
        raise InputError(
            f"--warm-up-epochs {rule.warm_up_epochs} leaves none of the {config.epochs} epochs to "
            f"--algorithm {config.algorithm}; use fewer, more --epochs or --algorithm cd-0"
        )
    _check_bins(config)
    _check_memories(config)


def _check_bins(config: TrainConfig) -> None:
    """Refuse more bins than there may be."""
    count = config.delays.num_bins
    if count <= _MAX_BINS:
        return
    if count == config.algorithm_delay:
        raise InputError(
            f"--algorithm {config.algorithm} deals rows among {count} bins, but at most "
            f"{_MAX_BINS} are allowed; use a smaller R or set --bins"
        )
    raise InputError(f"--bins must be from 1 to {_MAX_BINS}, got {count}")


def check_delay(config: TrainConfig) -> None:
    """Refuse a delay after which the run would have ended; a run may go on with fewer epochs.

    Args:
        config: A run, resolved.

    Raises:
        InputError: With the flag to change.
    """
    rule = config.delays
    most = config.epochs - rule.warm_up_epochs - 1
    if rule.delay <= most:
        return
    given = f"--delay {rule.delay}"
    if rule.delay == config.algorithm_delay:
        given = f"--algorithm {config.algorithm}"
    after = f" after --warm-up-epochs {rule.warm_up_epochs}" if rule.warm_up_epochs else ""
    raise InputError(
        f"{given} uses rows {rule.delay} epochs after they were sent, when --epochs "
        f"{config.epochs}{after} are over; use --delay {most} or less, or --epochs "
        f"{config.epochs + rule.delay - most} or more"
    )


def _smoothings(config: TrainConfig) -> tuple[tuple[str, float], ...]:
    rule = config.delays
    return (
        ("--smoothing", rule.forward.smoothing),
        ("--gradient-smoothing", rule.backward.smoothing),
    )


def _check_nothing_is_given(config: TrainConfig) -> None:
    """Refuse what has an effect on delayed rows only."""
    rule = config.delays
    for given, is_given in (
        (f"--bins {rule.num_bins}", rule.num_bins > 1),
        (f"--delay {rule.delay}", rule.delay > 0),
        ("--delay-cache off", not rule.forward.is_cached),
        ("--gradient-cache off", not rule.backward.is_cached),
        *((f"{flag} {share}", share > 0) for flag, share in _smoothings(config)),
        (f"--warm-up-epochs {rule.warm_up_epochs}", rule.warm_up_epochs > 0),
    ):
        if is_given:
            raise InputError(
                f"{given} has no effect with --algorithm {config.algorithm}; "
                "use cd-R with R at least 1"
            )


def _check_memories(config: TrainConfig) -> None:
    rule = config.delays
    names = ("--delay-cache", "--gradient-cache")
    memories = zip(names, (rule.forward, rule.backward), _smoothings(config), strict=True)
    for name, memory, (flag, share) in memories:
        if not memory.is_cached and rule.num_bins == 1:
            raise InputError(
                f"{name} off has no effect with 1 bin, as all rows arrive in every epoch; "
                "drop it or use --bins above 1"
            )
        if share > 0 and not memory.is_cached:
            raise InputError(
                f"{flag} {share} averages the values of a row, but {name} off drops them; "
                "drop one of the two"
            )
        uses = config.model.kind.sends_no_sums(config.model)
        if share > 0 and uses:
            raise InputError(
                f"{flag} {share} averages sums, but {uses} sends others; "
                f"use --smoothing 0 or another model"
            )
