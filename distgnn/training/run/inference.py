"""Scores of a trained model, on the parts that it was trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.fetch import Roots
from distgnn.exchange.tags import SETUP_TAG
from distgnn.graph.local_graph import LocalGraph
from distgnn.kernels.devices import PROCESSOR
from distgnn.nn.models import GNN, LinkModel
from distgnn.ops.host_rows import HostRows
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.data.inputs import input_rows, split_rows
from distgnn.training.data.label_input import append_labels
from distgnn.training.data.placement import place_rows
from distgnn.training.loop.graphs import plan_edges, reads_types
from distgnn.training.loop.model import build_model, num_inputs
from distgnn.training.loop.own_model import build_own, call_own, own_name, rows_for
from distgnn.training.run.directory import CONFIG, RunDirectory
from distgnn.training.run.tensors import read_tensors
from distgnn.training.tasks.links import Pairs, own_share
from distgnn.training.tasks.tasks import TASKS

_SIZES = ("num_vertices", "num_relations", "num_vertex_types", "num_edge_features")

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.edges.walk_orders import WalkOrders
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.training.tasks.smoothing import CorrectAndSmooth
    from distgnn.training.tasks.tasks import VertexTask


class TrainedRun:
    """A finished run, read back.

    Args:
        run_dir: Its directory.
        factory: Class or function that made the model, if the user wrote it.

    Attributes:
        factory: Class or function that made the model; None for a model of ours.
        source: Values that open the source again.
        ends: Widths of the model's ends.
        config: Settings of the training.

    Raises:
        InputError: If it is no run, or has no trained model yet.
    """

    def __init__(
        self, run_dir: RunDirectory, factory: Callable[[Any], nn.Module] | None = None
    ) -> None:
        self.factory = factory
        values = run_dir.read_config()
        try:
            self.source: dict[str, Any] = dict(values["source"])
            ends, config = dict(values["task"]), values["train"]
            widths = int(ends["num_features"]), int(ends["num_classes"])
            names = tuple(str(name) for name in ends["class_names"])
            vertices, relations, types, columns = (int(ends[name]) for name in _SIZES)
            about = str(ends["name"]), *widths, names, str(ends.get("metric", ""))
            self.ends = DataInfo(
                *(*about, vertices, relations, types),
                num_edge_features=columns,
                has_edge_weights=bool(ends["has_edge_weights"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"'{run_dir.path}/{CONFIG}' is not a run's configuration; train again"
            ) from error
        self.config = TrainConfig.from_json(config)
        self._model_path = run_dir.model_path
        if not self._model_path.exists():
            raise InputError(
                f"'{run_dir.path}' has no {self._model_path.name}: the run has not ended; "
                "finish it with the command that began it and --resume"
            )

    def load_model(self, device: torch.device = PROCESSOR) -> nn.Module:
        """Build the model with the weights of its best epoch.

        Args:
            device: Where it is to run.

        Raises:
            InputError: If the file is damaged or holds another model, or the user wrote the model
                and it was not given.
        """
        try:
            model = self._build_model()
            model.load_state_dict(read_tensors(self._model_path))
        except RuntimeError as error:
            raise InputError(
                f"'{self._model_path}' holds another model than its run's {CONFIG}; train again"
            ) from error
        return model.to(device).eval()

    def _build_model(self) -> nn.Module:
        own = self.config.model.own
        if not own:
            return build_model(self.config, self.ends)
        if self.factory is None or own_name(self.factory) != own:
            given = "" if self.factory is None else f", not {own_name(self.factory)}"
            raise InputError(
                f"the run trained a model of your own, {own}{given}; use it from Python with "
                f"distgnn.Run(path, model={own})"
            )
        sizes = replace(self.ends, num_features=num_inputs(self.config, self.ends))
        return build_own(self.factory, sizes, self.config.seed)

    @property
    def learned(self) -> VertexTask:
        """Task of the run."""
        return TASKS[self.config.task]

    def link_probability(
        self, part: Part, group: Group, rows: Tensor, ends: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Say how likely pairs of vertices are linked; collective.

        Args:
            part: This rank's part.
            group: One rank per part.
            rows: (num_roots, width) of this rank, from `scores`, on the group's device.
            ends: (num, 2) int64. Global ids, the same on every rank.

        Returns:
            (num,) float32, the same on every rank.
        """
        model = self.load_model(group.device)
        assert isinstance(model, LinkModel), "links are decoded"
        root_id = torch.from_numpy(np.array(part.global_id[: part.num_roots]))
        exchange = Synchronous(group, device=group.device)
        roots = Roots(exchange, root_id, self.ends.num_vertices)
        total = torch.zeros(len(ends))
        own = own_share(len(ends), group)
        pairs = Pairs(roots, *torch.from_numpy(ends[own]).unbind(dim=1))
        with torch.no_grad():
            total[own] = pairs.scores(rows, model.decoder).sigmoid().cpu()
        group.all_reduce(total)
        probability: NDArray[np.float32] = total.numpy()
        return probability

    def graph(
        self,
        part: Part,
        group: Group,
        *,
        walk_orders: WalkOrders | None = None,
        keeps_edges: bool = False,
    ) -> LocalGraph:
        """Build the graph that the model walks, without delays; collective.

        Args:
            part: This rank's part.
            group: One rank per part.
            walk_orders: Decide how sums walk the graph; None to make new ones.
            keeps_edges: Whether its edges are kept as they are beside those that the model walks,
                where it adds one from each vertex to itself: correct-and-smooth adds none.
        """
        if keeps_edges:
            model = self.config.model
            blocks = plan_blocks(
                part,
                group,
                has_positions=False,
                has_types=reads_types(model, part),
                has_features=model.reads_edge_features,
                walk_orders=walk_orders,
            )
        else:
            setup = Synchronous(group, first_tag=SETUP_TAG)
            blocks = plan_edges(self.config, part, setup, walk_orders)
        return LocalGraph(part, blocks, Synchronous(group, device=group.device))

    def scores(
        self,
        part: Part,
        group: Group,
        *,
        features: Rows | None = None,
        walk_orders: WalkOrders | None = None,
        after: CorrectAndSmooth | None = None,
        crowded: str = "",
    ) -> Tensor:
        """Score a part's roots, exactly, on the group's device; collective.

        Args:
            part: This rank's part.
            group: One rank per part.
            features: Input rows of the part's roots, as in training; None to read them from the
                part.
            walk_orders: Decide how sums walk the graph; None to make new ones.
            after: Correction of the scores with the labels of the run's training vertices.
            crowded: Reason why features have no room on the device; empty where they do.

        Returns:
            (num_roots, num_classes) scores before softmax or sigmoid; (num_roots, width) rows that
            the model decodes, if it predicts links.

        Raises:
            InputError: If vertices have no single label, and `after` needs one.
        """
        if after is not None and self.config.task != "single-label":
            raise InputError(
                f"--correct-and-smooth needs one label a vertex, but this is a {self.config.task} "
                "task; leave it out"
            )
        model = self.load_model(group.device)
        if features is None:
            features = self._read_input(part, group)
        if self.factory is not None:
            features = rows_for(self.factory, features)
        features = place_rows(features, self.config, device=group.device, crowded=crowded)
        graph = self._graph_of(
            part, group, features, walk_orders=walk_orders, keeps_edges=after is not None
        )
        with torch.no_grad():
            scores: Tensor = (
                call_own(model, graph, features, self.ends)
                if self.config.model.own
                else model(graph, features)
            )
            if after is not None:
                known = (one.to(group.device) for one in self._known_labels(part))
                scores = after.apply(graph, scores, *known)
        return scores

    def hidden(
        self, part: Part, group: Group, *, walk_orders: WalkOrders | None = None, crowded: str = ""
    ) -> Tensor:
        """Compute the rows of the last hidden layer of a part's roots, exactly; collective.

        Args:
            part: This rank's part.
            group: One rank per part.
            walk_orders: Decide how sums walk the graph; None to make new ones.
            crowded: Reason why features have no room on the device; empty where they do.

        Returns:
            (num_roots, width) rows that the layer of the classes reads, on the group's device; of
            a run that learned links, those that its decoder reads.

        Raises:
            InputError: If the model has no hidden layer.
        """
        if self.config.task == "link":
            return self.scores(part, group, walk_orders=walk_orders, crowded=crowded)
        model = self.load_model(group.device)
        if not isinstance(model, GNN):
            raise InputError(
                f"embed needs to know the hidden layers of the model, but {self.config.model.own} "
                "is one of your own; let it return the rows, and use predict"
            )
        if not len(model.hidden):
            raise InputError(
                f"a {self.config.model.model} model of 1 layer has no hidden rows, so it embeds no "
                "vertices; train one with more --layers"
            )
        kept: list[Tensor] = []
        model.last.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[-1]))
        features = self._read_input(part, group)
        features = place_rows(features, self.config, device=group.device, crowded=crowded)
        graph = self._graph_of(part, group, features, walk_orders=walk_orders, keeps_edges=False)
        with torch.no_grad():
            model(graph, features)
        return kept[0]

    def _graph_of(
        self,
        part: Part,
        group: Group,
        features: Rows,
        *,
        walk_orders: WalkOrders | None,
        keeps_edges: bool,
    ) -> LocalGraph:
        """Build the graph of `graph`, ready for these features; collective."""
        has_types = self.config.model.kind.is_typed
        graph = self.graph(part, group, walk_orders=walk_orders, keeps_edges=keeps_edges)
        if has_types and not features.shape[1]:
            graph.find_relation_sources()
        if isinstance(features, HostRows) and self.config.static_input and not has_types:
            # Sums of them are made once, some columns at a time.
            graph.set_static(features)
        return graph

    def _read_input(self, part: Part, group: Group) -> Rows:
        """Read what the model reads of a part's roots; collective."""
        config = self.config
        features = input_rows(
            part,
            group,
            norm=config.feature_norm,
            dtype=config.features_dtype,
            needs=not config.model.kind.is_typed,
        )
        if not config.labels_as_input:
            return features
        return append_labels(features, *self._known_labels(part), self.ends.num_classes)

    def _known_labels(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return the labels of a part's roots, and the (num_train,) int64 roots trained on."""
        labels = self.learned.targets(np.asarray(part.labels))
        return labels, split_rows(part, self.config.split_index, self.config.task)["train"]
