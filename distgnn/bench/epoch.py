"""Whole training epochs beside those of the peers: the same graph, weights, loss and optimizer."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch.nn import functional

from distgnn.bench import peers
from distgnn.bench.shapes import ORDERS, TWINS, make
from distgnn.bench.vertex_data import with_data
from distgnn.datasets import InputError
from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from distgnn.bench.shapes import Shape
    from distgnn.datasets import Graph
    from distgnn.nn.models import GNN
    from distgnn.partition.directory.store import Part
    from distgnn.settings.names import DtypeName, ModelName
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer

OURS = "distgnn"
PEERS = ("dgl", "pyg")
_MODELS = ("sage", "gcn", "gat", "gatv2")
# Ours with other settings, raced on demand: what rows are stored as.
VARIANTS: dict[str, DtypeName] = {"distgnn-bf16": "bf16"}


@dataclass(frozen=True, kw_only=True)
class EpochRace:
    """A comparison of epochs.

    Attributes:
        shape: A twin.
        order: Order of its vertices.
        scale: Scale of the twin.
        model: sage (mean), gcn, gat or gatv2.
        layers: Convolutions.
        hidden: Columns between them; of gat and gatv2, columns of each head.
        heads: Heads of gat and gatv2.
        dropout: Dropout between layers; losses are compared without it only.
        threads: Threads of every contestant.
        peers: Names of `PEERS` and `VARIANTS`.
        rounds: Number of timed epochs of each contestant.
        seed: Seed of the graph and the weights.
    """

    shape: str
    order: str
    scale: float
    model: ModelName
    layers: int
    hidden: int
    heads: int
    dropout: float
    threads: int
    peers: Sequence[str]
    rounds: int
    seed: int

    def __post_init__(self) -> None:
        """Check values, so that they are not refused in the middle of a comparison."""
        if self.shape not in TWINS:
            raise InputError(f"a shape must be one of {', '.join(TWINS)}, got '{self.shape}'")
        if self.order not in ORDERS:
            raise InputError(f"an order must be one of {', '.join(ORDERS)}, got '{self.order}'")
        if self.model not in _MODELS:
            raise InputError(
                f"--model must be one of {', '.join(_MODELS)}, which peers have too, "
                f"got '{self.model}'"
            )
        for peer in self.peers:
            if peer not in (*PEERS, *VARIANTS):
                allowed = ", ".join((*PEERS, *VARIANTS))
                raise InputError(f"a peer must be one of {allowed}, got '{peer}'")
        _our_config(self)


class PeerModule(Protocol):
    """Adapter file of a peer's models."""

    def build(self, graph: Graph, model: GNN) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        """Build the peer's model with the same weights.

        Args:
            graph: Symmetric, with dense features.
            model: Ours; its weights are copied.

        Returns:
            The module, and a function from features to scores of all vertices.
        """


def twin_graph(race: EpochRace, shape: Shape | None = None) -> Graph:
    """Put features, labels and masks on a twin.

    Args:
        race: Names the twin.
        shape: The twin, where it has been made before; None to make it.

    Returns:
        The graph; its labels can be learned from the features.
    """
    if shape is None:
        shape = make(race.shape, scale=race.scale, order=race.order, seed=race.seed)
    return with_data(shape, race.shape, race.seed)


def _our_config(race: EpochRace, dtype: DtypeName = "fp32") -> TrainConfig:
    from distgnn.nn.config import ModelConfig
    from distgnn.training.config.settings import TrainConfig

    model = ModelConfig(
        model=race.model,
        layers=race.layers,
        hidden=race.hidden,
        heads=race.heads,
        dropout=race.dropout,
        activations_dtype=dtype,
    )
    return TrainConfig(model=model, seed=race.seed, features_dtype=dtype)


def our_trainer(
    graph: Graph,
    race: EpochRace,
    dtype: DtypeName = "fp32",
    device: torch.device = PROCESSOR,
) -> Trainer:
    """Prepare ours.

    Args:
        graph: From `twin_graph`.
        race: Settings of the race.
        dtype: Type that rows are stored as.
        device: Device that computes.
    """
    from distgnn.partition.directory.store import whole_part
    from distgnn.training.data.info import DataInfo

    return trainer_of(whole_part(graph), DataInfo.of(graph), race, dtype, device)


def trainer_of(
    part: Part,
    ends: DataInfo,
    race: EpochRace,
    dtype: DtypeName = "fp32",
    device: torch.device = PROCESSOR,
) -> Trainer:
    """Prepare ours, of a graph whose edges may have been let go.

    Args:
        part: The only part of the graph.
        ends: Widths of the graph's model.
        race: Settings of the race.
        dtype: Type that rows are stored as.
        device: Device that computes.
    """
    from distgnn.comm.single import SingleGroup
    from distgnn.comm.transports.staged import staged
    from distgnn.training.loop.trainer import Trainer

    group = staged(SingleGroup(), device)
    return Trainer(_our_config(race, dtype), ends, part, group, device=device)


def peer_alone(name: str, graph: Graph, race: EpochRace) -> Callable[[], float]:
    """Prepare a peer without ours beside it.

    Args:
        name: Name of the peer.
        graph: From `twin_graph`.
        race: Settings of the race.

    Returns:
        A function that trains for an epoch and returns the loss.

    Raises:
        InputError: If the peer is not installed.
    """
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.model import build_model

    model = build_model(_our_config(race), DataInfo.of(graph))
    return _peer_step(name, graph, race, model, torch.float32)


def _step(name: str, graph: Graph, race: EpochRace, model: GNN) -> Callable[[], float]:
    """Prepare an epoch of a variant or a peer, that starts from the weights of a model.

    It runs where that model does.
    """
    device = next(model.parameters()).device
    if name in VARIANTS:
        return our_trainer(graph, race, VARIANTS[name], device).train_epoch
    return _peer_step(name, graph, race, model, torch.float32)


def _peer_step(
    name: str, graph: Graph, race: EpochRace, model: GNN, dtype: torch.dtype
) -> Callable[[], float]:
    """Prepare an epoch of a peer that computes in some precision, where the model lies."""
    device = next(model.parameters()).device
    config = _our_config(race)
    if name not in peers.installed():
        raise InputError(f"peer '{name}' is not installed; leave it out of --peers")
    adapter: PeerModule = importlib.import_module(f"distgnn.bench.peers.{name}_model")
    module, scores_of = adapter.build(graph, model)
    module.to(dtype)
    optimizer = torch.optim.Adam(
        module.parameters(), lr=config.lr, weight_decay=config.weight_decay
    )
    features = torch.from_numpy(np.asarray(graph.features)).to(device, dtype)
    assert graph.labels is not None, "a twin has labels"
    assert graph.train_mask is not None, "a twin has masks"
    rows = torch.from_numpy(np.flatnonzero(graph.train_mask[0])).to(device)
    labels = torch.from_numpy(graph.labels.astype(np.int64)).to(device)[rows]

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(scores_of(features)[rows], labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    module.train()
    return step


def largest_difference(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest relative difference of losses from others, epoch by epoch.

    Losses that are equal differ by 0, that of a graph learned by heart being 0 itself.
    """
    base = np.array(others)
    differences = np.abs(np.array(losses) - base)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(differences == 0, 0.0, differences / np.abs(base))
    return float(relative.max())


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """Times and losses of all contestants, ours first.

    Attributes:
        race: Settings of the race.
        num_vertices: Number of vertices of the graph.
        num_edges: Directed edges.
        names: Contestants.
        seconds: Seconds of each epoch, by contestant.
        losses: Loss of each epoch, by contestant, the untimed first one included.
        savings: Exact savings of ours.
        exact_losses: Loss of each epoch of a peer in double precision; None if not asked for.
        phases: Seconds of one epoch of ours, by phase.
        peak_rss_bytes: Peak memory of each contestant in a process of its own; None if not asked.
    """

    race: EpochRace
    num_vertices: int
    num_edges: int
    names: list[str]
    seconds: list[list[float]]
    losses: list[list[float]]
    savings: tuple[str, ...]
    exact_losses: list[float] | None
    phases: dict[str, float]
    peak_rss_bytes: list[int] | None

    def median_s(self, index: int) -> float:
        """Median epoch of a contestant."""
        return float(np.median(self.seconds[index]))

    def loss_difference(self, index: int) -> float:
        """Largest relative difference of a contestant's losses from ours."""
        return largest_difference(self.losses[index], self.losses[0])

    def loss_error(self, index: int) -> float | None:
        """Largest relative difference of a contestant's losses from those in double precision."""
        if self.exact_losses is None:
            return None
        return largest_difference(self.losses[index], self.exact_losses)

    def to_json(self) -> dict[str, Any]:
        """Turn into plain JSON values."""
        return asdict(self)


def exact_losses(graph: Graph, race: EpochRace) -> list[float] | None:
    """Train the first peer in double precision.

    Args:
        graph: From `twin_graph`.
        race: Settings of the race.

    Returns:
        (rounds + 1,) losses; None without a peer, or where everybody drops out something else.
    """
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.model import build_model

    name = next((peer for peer in race.peers if peer in PEERS), None)
    if name is None or race.dropout > 0:
        return None
    model = build_model(_our_config(race), DataInfo.of(graph))
    step = _peer_step(name, graph, race, model, torch.float64)
    return [step() for _ in range(race.rounds + 1)]


def peak_bytes(race: EpochRace, name: str) -> int:
    """Train some epochs in a fresh process.

    Args:
        race: Race that the contestant takes part in.
        name: Name of the contestant.

    Returns:
        Bytes at the peak of resident memory, from the time on when the graph had been made.

    Raises:
        InputError: If the process fails; its last words are in the message.
    """
    command = [sys.executable, "-m", "distgnn.bench.memory", name, json.dumps(asdict(race))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"{name} failed in a process of its own ({last}); use --memory off to compare times"
        )
    return int(done.stdout.splitlines()[-1])


def measure_epochs(
    race: EpochRace,
    *,
    has_memory: bool = False,
    has_exact: bool = False,
    device: torch.device = PROCESSOR,
    graph: Graph | None = None,
) -> EpochResult:
    """Train with each contestant in turn, epoch by epoch.

    Args:
        race: Settings of the race.
        has_memory: Whether to measure peak memory before, in a process for each contestant.
        has_exact: Whether to train the first peer once more in double precision, from the same
            weights. The distance of the losses in single precision from it says what a difference
            between two of them is worth.
        device: Device that computes, for all contestants.
        graph: Graph from `twin_graph`, where it has been made before; None to make it.

    Returns:
        The measurements.

    Raises:
        InputError: If a peer is not installed, or losses are compared that dropout makes differ.
    """
    if has_exact and race.dropout > 0:
        raise InputError(
            f"--exact compares losses, and with --dropout {race.dropout:g} everybody drops "
            "out something else; take --dropout 0, or leave --exact out"
        )
    torch.set_num_threads(race.threads)
    peaks = [peak_bytes(race, name) for name in (OURS, *race.peers)] if has_memory else None
    graph = twin_graph(race) if graph is None else graph
    trainer = our_trainer(graph, race, device=device)
    names = [OURS, *race.peers]
    steps: list[Callable[[], float]] = [trainer.train_epoch]
    steps += [_step(name, graph, race, trainer.known_model("a benchmark")) for name in race.peers]
    # The first epoch makes walk orders, formats and buffers and is not timed.
    losses = [[step()] for step in steps]
    seconds: list[list[float]] = [[] for _ in steps]
    trainer.graph.exchange.clock.take()
    for _ in range(race.rounds):
        for index, step in enumerate(steps):
            start = time.perf_counter()
            losses[index].append(step())
            seconds[index].append(time.perf_counter() - start)
    phases = {
        phase: total / race.rounds for phase, total in trainer.graph.exchange.clock.take().items()
    }
    phases["update"] = float(np.mean(seconds[0])) - sum(phases.values())
    return EpochResult(
        race=race,
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        names=names,
        seconds=seconds,
        losses=losses,
        savings=trainer.graphs.savings,
        exact_losses=exact_losses(graph, race) if has_exact else None,
        phases=phases,
        peak_rss_bytes=peaks,
    )
