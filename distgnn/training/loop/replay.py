"""Steps and evaluations that a CUDA device replays as CUDA graphs."""

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

# Ordinary calls before one is recorded: the first ones make walk orders and compile kernels.
_NUM_WARM_UPS = 3
# A call is recorded if launching its operations takes at least this share of its time.
_LEAST_SHARE = 0.5
_MAX_SEEDS = 256


class Repeated(Protocol):
    """Work that is done once an epoch: a step, or the scores of an evaluation."""

    def take(self) -> Tensor:
        """Do the work.

        Returns:
            The result; the next call overwrites it.
        """

    def take_note(self) -> str | None:
        """Return a line for the log about the last call, or None."""


class Called:
    """Work that is an ordinary call of a function.

    Args:
        function: Function to call.
    """

    def __init__(self, function: Callable[[], Tensor]) -> None:
        self._function = function

    def take(self) -> Tensor:
        """See `Repeated`."""
        return self._function()

    def take_note(self) -> None:
        """See `Repeated`."""


class Replayed:
    """Work that is recorded once as a CUDA graph and then replayed, where this pays.

    A step on a small graph is hundreds of short operations, and launching each takes longer than
    running it. All of them use the same memory in every epoch. Seeds of dropout change, so kernels
    read them from the device. The first calls are measured: nothing is recorded where operations
    take longer than their launch, or where the device has no room for a second copy of a call's
    memory. Results have the same bits in both cases. Phases of a replayed step are not timed.

    Args:
        name: Name of the work, for messages.
        function: Function with the same operations every time; it never waits for the device.
        graph: Graph on a CUDA device, on one rank.
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
        """Write the mixed seeds of this epoch to where kernels read them."""
        draws = self._graph.mask_seeds
        assert draws.places is not None, "they are made with this"
        mixed = [mixed_seed(seed) for seed in draws.coming_seeds(self._num_seeds)]
        values = torch.from_numpy(np.array(mixed, dtype=np.uint64).view(np.int64))
        draws.places[: self._num_seeds, 0].copy_(values)

    def _take_watched(self) -> Tensor:
        """Call the function and time it; the last of these calls decides whether to record."""
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
        # Memory that the other stream caches cannot be used by this one.
        torch.cuda.empty_cache()

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        recorded = torch.cuda.CUDAGraph()
        exchange = self._graph.exchange
        # A recording must not wait for an event, which a timed phase would do.
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
    """Return whether the work of an epoch may be replayed.

    Args:
        config: The run.
        trace: Trace of the run; a written one needs phases, which a replay does not have.
        features: Features of the run. Copies of rows in host memory wait for earlier events, which
            a recording must not.
    """
    return config.replay and not isinstance(trace, Trace) and not isinstance(features, HostRows)


def build_repeated(
    name: str, function: Callable[[], Tensor], graph: LocalGraph, *, is_wanted: bool
) -> Repeated:
    """Build the work of an epoch.

    Args:
        name: Name of the work, for messages.
        function: Function that does it.
        graph: Graph that it runs on.
        is_wanted: Whether it may be replayed: its operations are the same every time, and its
            phases are not timed.

    Returns:
        Replayed work for one rank on a CUDA device, else an ordinary call.
    """
    graph.mask_seeds.places = None
    if is_wanted and graph.device.type == "cuda" and graph.group.size == 1:
        return Replayed(name, function, graph)
    return Called(function)
