"""Graph and input of each step: that of the run, or at first each vertex or each part alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from distgnn.edges.walk_orders import WalkOrders
from distgnn.graph.local_graph import LocalGraph
from distgnn.training.loop.graphs import plan_edges, setup_exchange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.ops.rows import Rows
    from distgnn.optim.optimizers import Optimizer
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.label_input import Input
    from distgnn.training.loop.graphs import PartsPass, RunGraphs, TaskInputs


class Pass(NamedTuple):
    """Graph and input of a training pass.

    Attributes:
        graph: Graph that the layers run on.
        rows: (graph.num_rows, num_features).
    """

    graph: LocalGraph
    rows: Rows


class Course(Protocol):
    """Decides what each epoch trains on.

    Attributes:
        quiet: Epochs that train on something else, and send no rows. What decides on them while a
            run trains may end them with the latest epoch.
        coverage: Share of in-edges that these epochs see; 0 where they see none.
    """

    quiet: range
    coverage: float

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for an epoch; collective.

        Args:
            epoch: Number of the epoch.
        """

    def is_evaluated(self, epoch: int) -> bool:
        """Return whether the weights of an epoch may be evaluated.

        Args:
            epoch: Number of the epoch.
        """

    def take(self) -> Pass:
        """Return graph and input of this epoch."""


class OnGraph:
    """Every epoch trains on the graph.

    Args:
        graph: Graph of the training pass.
        source: Its input.
    """

    coverage = 0.0

    def __init__(self, graph: LocalGraph, source: Input) -> None:
        self.quiet = range(0)
        self._graph = graph
        self._source = source

    def begin_epoch(self, epoch: int) -> None:
        """Do nothing."""

    def is_evaluated(self, epoch: int) -> bool:
        """Return True."""
        del epoch
        return True

    def take(self) -> Pass:
        """Return graph and input."""
        return Pass(self._graph, self._source.rows())


class MlpStart(OnGraph):
    """The first epochs train the same weights on each vertex alone, the others on the graph.

    A vertex alone has one edge, from itself. So a layer is what its formula says without
    neighbours, nothing travels, and only rows that the loss reads are computed. The optimizer
    begins again with the graph, as the loss is another one.

    Args:
        graph: Graph of the training pass.
        source: Its input.
        config: The run; its start has epochs.
        graphs: Graphs of the run.
        inputs: Inputs of the run.
        optimizer: Optimizer of the run.

    References:
        Han et al., "MLPInit: Embarrassingly Simple GNN Training Acceleration with MLP
        Initialization", ICLR 2023.
    """

    def __init__(
        self,
        graph: LocalGraph,
        source: Input,
        *,
        config: TrainConfig,
        graphs: RunGraphs,
        inputs: TaskInputs,
        optimizer: Optimizer,
    ) -> None:
        super().__init__(graph, source)
        self.quiet = config.quiet_epochs
        self._config = config
        self._graphs = graphs
        self._inputs = inputs
        self._optimizer = optimizer
        self._alone: Pass | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Build the start when it begins, free it when it ends; see `Course`."""
        if epoch in self.quiet:
            self._alone = self._alone or _alone(self._config, self._graphs, self._inputs)
        else:
            self._alone = None
        if epoch == self.quiet.stop:
            self._optimizer.load_state_dict({})

    def is_evaluated(self, epoch: int) -> bool:
        """Return whether the graph is trained on; an evaluation sends rows."""
        return epoch not in self.quiet

    def take(self) -> Pass:
        """Return graph and input of this epoch."""
        return self._alone or super().take()


class PartsStart(OnGraph):
    """The first epochs, or some of them, train each part as a graph of its own.

    No row travels in these, as in 0c; gradients and statistics do. Vertices see the edges of their
    part alone, so the loss is nearly the same, and the optimizer goes on.

    Args:
        graph: Graph of the training pass.
        source: Its input.
        parts: The part alone, and the epochs on it.

    References:
        Md et al., "DistGNN", SC 2021, for 0c; Ramezani et al., "LLCG", ICLR 2022, for epochs on
        parts that others correct.
    """

    def __init__(self, graph: LocalGraph, source: Input, parts: PartsPass) -> None:
        super().__init__(graph, source)
        self.quiet, self.coverage = parts.quiet, parts.coverage
        self._parts: Pass | None = Pass(parts.graph, parts.features)
        self._is_quiet = False

    def begin_epoch(self, epoch: int) -> None:
        """Free the part where its epochs have ended; see `Course`."""
        self._is_quiet = epoch in self.quiet
        if epoch >= self.quiet.stop:
            self._parts = None

    def take(self) -> Pass:
        """Return graph and input of this epoch."""
        if self._is_quiet and self._parts is not None:
            return self._parts
        return super().take()


def build_course(
    config: TrainConfig,
    graphs: RunGraphs,
    source: Input,
    inputs: TaskInputs,
    optimizer: Optimizer,
) -> Course:
    """Build what decides on the epochs of a run.

    Args:
        config: The run.
        graphs: Its graphs.
        source: Input of the training pass.
        inputs: Its inputs.
        optimizer: Its optimizer.
    """
    if graphs.parts is not None:
        return PartsStart(graphs.training, source, graphs.parts)
    if not config.quiet_epochs or config.starts_on_parts:
        return OnGraph(graphs.training, source)
    shared = {"config": config, "graphs": graphs, "inputs": inputs, "optimizer": optimizer}
    return MlpStart(graphs.training, source, **shared)  # type: ignore[arg-type]


def _alone(config: TrainConfig, graphs: RunGraphs, inputs: TaskInputs) -> Pass:
    """Return the graph without neighbours of the rows that the loss reads, and their input."""
    training = graphs.training
    row_id, rows = training.row_id, graphs.features
    if graphs.loss_rows is None:
        wanted = inputs.wanted.to(training.device)
        row_id, rows = graphs.exact.row_id[wanted], inputs.features[wanted]
    part = part_alone(graphs.exact.part, row_id.cpu().numpy())
    setup = setup_exchange(config, training.group)
    blocks = plan_edges(config, part, setup, WalkOrders())
    graph = LocalGraph(
        part,
        blocks,
        training.exchange,
        num_roots=min(training.num_roots, part.num_roots),
        mask_seeds=training.mask_seeds,
    )
    return Pass(graph, rows)


def part_alone(part: Part, row_id: NDArray[np.int64]) -> Part:
    """Return a part of vertices that have an edge from themselves and no other.

    Args:
        part: Any part of the partition.
        row_id: (num,) int64. Global ids of the vertices.

    Returns:
        A part without leaves, weights and data.
    """
    num = len(row_id)
    nothing = np.zeros(part.num_parts, np.int64)
    no_leaves, no_rows = np.zeros(0, bool), np.zeros(0, np.int32)
    starts, ones = np.arange(num + 1, dtype=np.int64), np.ones(num, np.int64)
    own = np.arange(num, dtype=np.int32)
    return replace(
        part,
        num_roots=num,
        num_leaves=0,
        global_id=row_id,
        indptr=starts,
        indices=own,
        t_indptr=starts,
        t_indices=own,
        t_edge=None,
        edge_weight=None,
        leaf_counts=nothing,
        is_reading=no_leaves,
        is_writing=no_leaves,
        send_counts=nothing,
        send_rows=no_rows,
        reduce_counts=nothing,
        reduce_rows=no_rows,
        in_degree=ones,
        out_degree=ones,
        self_loops=ones.astype(np.int32),
        features=None,
        labels=None,
        train_mask=None,
        val_mask=None,
        test_mask=None,
        vertex_id=None,
        edge_type=None,
        edge_features=None,
        relation_degree=None,
        vertex_type=None,
    )
