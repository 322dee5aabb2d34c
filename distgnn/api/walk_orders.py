"""Walk orders of a run's kernels: where they are kept, and who makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.api.source import Source
    from distgnn.comm.group import Group
    from distgnn.edges.walk_orders import WalkOrders, WalkOrderSource
    from distgnn.training.config.settings import TrainConfig


def check_tuning(*, tunes: bool, device: str) -> None:
    """Refuse to try kernels that the device does not run.

    Args:
        tunes: Whether kernels are to be tried.
        device: Name of the device.

    Raises:
        InputError: If kernels are to be tried, but the processor does not run them.
    """
    if tunes and device != "cpu":
        raise InputError(
            f"--tune-kernels tries kernels of the processor, got --device {device}; "
            "drop --tune-kernels or use --device cpu"
        )


def build_walk_orders(
    config: TrainConfig,
    source: Source,
    group: Group,
    *,
    cache: str,
    tunes: bool,
    say: Callable[[str], None],
    is_quiet: bool,
) -> WalkOrders:
    """Build the walk orders of a rank's sums.

    Args:
        config: Settings of the run.
        source: Source that the run trains on.
        group: All ranks.
        cache: Folder of walk orders, or on or off; see `walk_folder`.
        tunes: Whether to try how sums walk each block fastest.
        say: Receives notes about the work under way, on any rank.
        is_quiet: Whether to say what is wrong with the folder only.

    Returns:
        The walk orders of this rank.
    """
    from distgnn.edges.walk_orders import WalkOrderSource
    from distgnn.training.run.walk_order_cache import WalkOrderCache

    def say_of_rank(line: str) -> None:
        say(line if group.size == 1 else f"rank {group.rank}: {line}")

    folder = walk_folder(cache, source)
    walks = WalkOrderSource() if folder is None else WalkOrderCache(folder, say_of_rank)
    is_silent = is_quiet or group.rank != 0
    return _walk_orders(
        config,
        source,
        walks,
        folder=folder,
        is_trying=tunes,
        say=(lambda line: None) if is_silent else say,
    )


def build_reader(
    config: TrainConfig, source: Source, *, cache: str, say: Callable[[str], None]
) -> WalkOrders:
    """Build walk orders that are read of a run's, for a pass too short to make any.

    Args:
        config: Settings of the run.
        source: Source that the run was trained on.
        cache: Folder of walk orders, or on or off; see `walk_folder`.
        say: Receives notes about walk orders that cannot be used.

    Returns:
        The walk orders of a rank.
    """
    from distgnn.edges.walk_orders import NoWalkOrders
    from distgnn.training.run.walk_order_cache import WalkOrderCache

    folder = walk_folder(cache, source)
    walks = NoWalkOrders() if folder is None else WalkOrderCache(folder, say, others=NoWalkOrders())
    return _walk_orders(config, source, walks, folder=folder, is_trying=False, say=say)


def _walk_orders(
    config: TrainConfig,
    source: Source,
    walks: WalkOrderSource,
    *,
    folder: Path | None,
    is_trying: bool,
    say: Callable[[str], None],
) -> WalkOrders:
    from distgnn.edges.walk_orders import WalkOrders
    from distgnn.kernels import instruction_set, num_threads
    from distgnn.machine.facts import processor
    from distgnn.training.loop.walk_trials import Tuner, aggregated_widths

    tuner = Tuner(
        aggregated_widths(config, source.ends),
        source=walks,
        machine=f"{processor()}, {instruction_set()}, {num_threads()} threads",
        folder=folder,
        is_trying=is_trying,
        say=say,
    )
    return WalkOrders(walks, tuner)


def walk_folder(choice: str, source: Source) -> Path | None:
    """Return the folder that walk orders are kept in, or None.

    Args:
        choice: A folder; on for one beside a partition directory; off for none.
        source: Source that the run trains on.
    """
    if choice == "off":
        return None
    if choice != "on":
        return Path(choice)
    if source.manifest is None:
        return None
    # The directory itself is never changed once it is complete.
    directory = Path(source.values["source"])
    return directory.with_name(f"{directory.name}.walks")
