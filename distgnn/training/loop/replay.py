"""What a CUDA device repeats without being told each of its operations again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.exchange.clock import Clock
from distgnn.kernels.devices import free_bytes
from distgnn.kernels.seeds import mixed_seed
from distgnn.ops.host_rows import HostRows
from distgnn.training.loop.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.loop.trace import NoTrace

# Calls that are made as they are before one is recorded: the first build plans and compile.
_NUM_WARM_UPS = 3
# A call is recorded if telling the device what to do takes at least this share of it.
_LEAST_SHARE = 0.5
_MAX_SEEDS = 256


class Repeated(Protocol):
    """Something that is done once an epoch: a step, or what an evaluation scores."""

    def take(self) -> Tensor:
        """Do it.

        Returns:
            What it gives, until the next time.
        """

    def take_note(self) -> str | None:
        """Return what a reader of the log should know since the last call; None for nothing."""


class Called:
    """Done by calling a function.

    Args:
        function: Does it.
    """

    def __init__(self, function: Callable[[], Tensor]) -> None:
        self._function = function

    def take(self) -> Tensor:
        """See `Repeated`."""
        return self._function()

    def take_note(self) -> None:
        """See `Repeated`."""


class Replayed:
    """Records a call as a CUDA graph and repeats that, where this pays.

    A step on a small graph is hundreds of short operations, and telling the device of each takes
    longer than doing it. All of them use the same memory in every epoch, but for the seeds of
    dropout, which kernels therefore read from the device. Whether it pays is measured on the calls
    before: where operations take longer than being told, or the device has no room for a call's
    memory besides that of others, calls stay as they are. Results have the same bits in both cases;
    only the phases of a step are not told apart once it is recorded.

    Args:
        name: Of what is done, for messages.
        function: Does it, by the same operations every time, without waiting for the device.
        graph: What it works on, on a CUDA device; on one rank.
    """

    def __init__(self, name: str, function: Callable[[], Tensor], graph: LocalGraph) -> None:
        self._name = name
        self._function = function
        self._graph = graph
        self._device = graph.device
        # Autograd wants the steps before on the stream that is recorded.
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        graph.mask_seeds.places = torch.zeros(_MAX_SEEDS, 2, dtype=torch.int64, device=self._device)
        self._num_taken = 0
        self._num_seeds = _MAX_SEEDS
        self._recorded: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None
        self._note: str | None = None

    def take_note(self) -> str | None:
        """See `Repeated`."""
        note, self._note = self._note, None
        return note

    def take(self) -> Tensor:
        """See `Repeated`.

        Raises:
            InputError: If the call cannot be recorded.
        """
        if self._num_taken > _NUM_WARM_UPS and self._recorded is None:
            return self._function()
        self._write_seeds()
        self._num_taken += 1
        if self._num_taken <= _NUM_WARM_UPS:
            return self._take_watched()
        if self._recorded is None or self._result is None:
            self._recorded, self._result = self._record()
        self._recorded.replay()
        return self._result

    def _write_seeds(self) -> None:
        """Put what becomes of this epoch's seeds where kernels read it."""
        draws = self._graph.mask_seeds
        assert draws.places is not None, "they are made with this"
        mixed = [mixed_seed(seed) for seed in draws.coming_seeds(self._num_seeds)]
        values = torch.from_numpy(np.array(mixed, dtype=np.uint64).view(np.int64))
        draws.places[: self._num_seeds, 0].copy_(values)

    def _take_watched(self) -> Tensor:
        """Call the function; after the last of the first calls say whether to record the next."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        start = time.perf_counter()
        with torch.cuda.stream(self._stream):
            result = self._function()
        told = time.perf_counter()
        self._stream.synchronize()
        stop = time.perf_counter()
        if self._num_taken == _NUM_WARM_UPS:
            self._decide((told - start) / (stop - start))
        return result

    def _decide(self, share: float) -> None:
        allocated = torch.cuda.memory_allocated(self._device)
        needed = torch.cuda.max_memory_allocated(self._device) - allocated
        num_drawn = self._graph.mask_seeds.num_drawn
        if (
            share >= _LEAST_SHARE
            and free_bytes(self._device) >= 2 * needed
            and num_drawn <= _MAX_SEEDS
        ):
            self._num_seeds = num_drawn
            self._note = (
                f"{self._name} is replayed as a CUDA graph from now on: telling the device what "
                f"to do took {share:.0%} of it (--replay off: it is told, and phases are timed)"
            )
            return
        self._num_taken += 1
        self._graph.mask_seeds.places = None
        # What the other stream has kept would not serve this one.
        torch.cuda.empty_cache()

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        recorded = torch.cuda.CUDAGraph()
        exchange = self._graph.exchange
        # Nobody may wait for a moment that is recorded.
        clock, exchange.clock = exchange.clock, Clock()
        try:
            with torch.cuda.graph(recorded, stream=self._stream):
                result = self._function()
        except RuntimeError as error:
            line = str(error).splitlines()[0]
            raise InputError(
                f"{self._name} cannot be recorded as a CUDA graph ({line}); use --replay off"
            ) from error
        finally:
            exchange.clock = clock
        return recorded, result


def may_replay(config: TrainConfig, trace: NoTrace, features: Rows) -> bool:
    """Whether a run lets what it does once an epoch be replayed.

    Args:
        config: The run.
        trace: Of the run; one that is written shows phases, which are not told apart in a replay.
        features: Of the run. Copies of streamed ones wait for events of the time before, which a
            recording may not.
    """
    return config.replay and not isinstance(trace, Trace) and not isinstance(features, HostRows)


def build_repeated(
    name: str, function: Callable[[], Tensor], graph: LocalGraph, *, is_wanted: bool
) -> Repeated:
    """Build what does something once an epoch.

    Args:
        name: Of what is done, for messages.
        function: Does it.
        graph: What it works on.
        is_wanted: Whether it may be replayed: it does the same operations every time, and nobody
            wants to know its phases.

    Returns:
        Something replayed for one rank on a CUDA device.
    """
    graph.mask_seeds.places = None
    if is_wanted and graph.device.type == "cuda" and graph.group.size == 1:
        return Replayed(name, function, graph)
    return Called(function)
