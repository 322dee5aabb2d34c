"""Models that users write: how they are built and called, and checks of what they return."""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from distgnn.datasets.errors import InputError
from distgnn.nn.config import OWN, ModelConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows

# Ranks that are threads share torch's generator: without a lock they would mix their draws.
_GENERATOR_LOCK = threading.Lock()
_TRAINED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Modules that a run trained, whose weights are none to begin with."""


class Widths(Protocol):
    """Sizes that a score table must have.

    Attributes:
        num_vertices: Number of vertices of the whole graph.
        num_classes: Number of columns of the scores.
    """

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the whole graph."""

    @property
    def num_classes(self) -> int:
        """Number of columns of the scores."""


def own_config(factory: Callable[[Any], nn.Module]) -> ModelConfig:
    """Return the shape of a model that the user wrote: its name is all that is known.

    Args:
        factory: Class of modules, or a function that returns one.
    """
    return ModelConfig(model=OWN, own=own_name(factory))


def own_name(factory: Callable[..., object]) -> str:
    """Return the name that a run remembers of a user's model or exchange.

    Args:
        factory: Its class, or a function that returns one.
    """
    return str(getattr(factory, "__qualname__", type(factory).__name__))


def rows_for(factory: Callable[[Any], nn.Module], rows: Rows) -> Rows:
    """Return input as a user's model takes it: dense, unless its class says `takes_sparse = True`.

    Args:
        factory: Class of modules, or a function that returns one.
        rows: (num_rows, num_features).
    """
    return rows if getattr(factory, "takes_sparse", False) else rows.to_dense()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let torch draw by a seed in this block, and as if nothing had happened after it.

    A resumed run then draws what the straight run draws, whatever else used the generator.

    Args:
        seed: In [0, 2**64).
        device: Device whose generator is seeded beside that of the processor.
    """
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        # torch takes seeds of 64 bits with a sign.
        torch.manual_seed(seed - (1 << 64) if seed >> 63 else seed)
        yield


def call_own(model: nn.Module, graph: LocalGraph, rows: Rows, sizes: Widths) -> Tensor:
    """Run a user's model and check what it returns.

    Args:
        model: Module with forward(graph, x).
        graph: Graph of the pass.
        rows: (graph.num_rows, num_features).
        sizes: Sizes of the whole graph.

    Returns:
        (graph.num_rows, num_classes) scores.

    Raises:
        InputError: If the scores have another shape, or the model changed its input in place.
    """
    before = _version(rows)
    scores: Tensor = model(graph, rows)
    if _version(rows) != before:
        raise InputError(
            "the model changed its input x in place, which later epochs read again; make a new "
            "tensor, such as x = x * 2"
        )
    check_scores(scores, graph.num_rows, sizes)
    return scores


def _version(rows: Rows) -> int:
    return rows._version if isinstance(rows, torch.Tensor) else 0


def build_own(factory: Callable[[Any], nn.Module], data: Any, seed: int) -> nn.Module:
    """Call a user's model factory with a seeded generator, and leave the generator as it was.

    Args:
        factory: A class of modules, or a function that returns one.
        data: Argument of the factory; it has num_features, num_classes and so on.
        seed: Seed of torch's generator while the factory runs.

    Returns:
        The module.

    Raises:
        InputError: If the factory returns something else.
    """
    with _GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory(data)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a class or function that returns a torch.nn.Module when it is called "
            f"with the data, but it returned {_kind(model)}; return the module"
        )
    return model


def begin_with(model: nn.Module, *, is_resumed: bool) -> None:
    """Refuse to begin a run with the weights that another one left in the same module.

    Args:
        model: Module of the user's.
        is_resumed: Whether its weights are those of a checkpoint.

    Raises:
        InputError: If a run trained it, and its weights are not of this run.
    """
    if model in _TRAINED and not is_resumed:
        raise InputError(
            f"model returned the {type(model).__name__} that an earlier run trained, so that "
            "another run would begin with its weights; make a new module in each call, or return "
            "copy.deepcopy(net) to go on from trained weights"
        )
    _TRAINED.add(model)


def check_own(model: nn.Module, group: Group, *, num_vertices: int) -> None:
    """Refuse a module that would compute something else on several ranks; collective.

    Args:
        model: Any module.
        group: All ranks.
        num_vertices: Number of vertices of the whole graph; 0 if it is not known yet.

    Raises:
        InputError: If the module has lazy parameters. On several ranks also if it has torch's batch
            norm, a buffer with a row for each vertex, or weights of other shapes on another rank.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {_kind(model)}; pass the module")
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise InputError(
                f"parameter '{name}' of the model is lazy and has no shape yet; give its layer "
                "the number of input columns, such as data.num_features"
            )
    if group.size == 1:
        return
    for name, module in model.named_modules():
        # Its statistics would be those of one rank's rows.
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"'{name}' of the model is torch's {type(module).__name__}, which would take the "
                "statistics of one rank's vertices; use distgnn.nn.BatchNorm, which is called with "
                "the graph and the rows"
            )
    for name, buffer in model.named_buffers():
        if num_vertices > 1 and buffer.ndim > 1 and buffer.shape[0] == num_vertices:
            raise InputError(
                f"buffer '{name}' of the model has a row for each of the graph's {num_vertices} "
                "vertices, but a rank sees its own vertices only; take rows from the data that "
                "ranks.load returns"
            )
    _check_same_shapes(model, group)


def _check_same_shapes(model: nn.Module, group: Group) -> None:
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = [json.loads(text) for text in group.all_gather_bytes(json.dumps(own).encode())]
    for rank, other in enumerate(shapes):
        for name in [*shapes[0], *other]:
            first, there = shapes[0].get(name), other.get(name)
            if first != there:
                raise InputError(
                    f"'{name}' of the model is {_shape(first)} on rank 0 but {_shape(there)} on "
                    f"rank {rank}; weights must have the same shape on every rank, so use sizes of "
                    "the whole graph such as data.num_features, not numbers of rows"
                )


def _shape(sizes: list[int] | None) -> str:
    return "missing" if sizes is None else f"of shape {tuple(sizes)}"


def check_scores(scores: object, num_rows: int, sizes: Widths) -> None:
    """Check what a model returned before it becomes a loss or a metric.

    Args:
        scores: Output of the model.
        num_rows: Number of rows that the model was given.
        sizes: Sizes of the whole graph.

    Raises:
        InputError: If it is no (num_rows, num_classes) tensor of floats.
    """
    check_rows(scores, num_rows, sizes.num_vertices)
    assert isinstance(scores, torch.Tensor), "checked above"
    if scores.ndim != 2 or scores.shape[1] != sizes.num_classes:
        raise InputError(
            f"scores must have {sizes.num_classes} columns, one for each class, but the model "
            f"returned shape {tuple(scores.shape)}; end it with a layer of data.num_classes columns"
        )


def check_rows(values: object, num_rows: int, num_vertices: int) -> None:
    """Check that a tensor has a row for each of this rank's vertices.

    Args:
        values: Output of a model, or a value for each row.
        num_rows: Number of rows of this rank.
        num_vertices: Number of vertices of the whole graph.

    Raises:
        InputError: If it does not, or is no tensor of floats.
    """
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, torch.Tensor) else _kind(values)
        raise InputError(
            f"scores must be a tensor of floats with a row for each of this rank's vertices, got "
            f"{kind}; return it from the model's forward(graph, x)"
        )
    found = values.shape[0] if values.ndim else 0
    if found == num_rows:
        return
    whole = ", as many as the whole graph has vertices" if found == num_vertices else ""
    raise InputError(
        f"scores must have {num_rows} rows, one for each vertex that this rank owns, but the "
        f"model returned {found}{whole}; keep the rows of x, and read other vertices through "
        "graph.aggregate or graph.attend alone"
    )


def trainable(models: list[nn.Module]) -> Iterator[nn.Parameter]:
    """Yield each parameter that has a gradient once, in the order of the models.

    Args:
        models: Modules, which may share parameters.
    """
    seen: set[int] = set()
    for model in models:
        for parameter in model.parameters():
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def leaves(result: Tensor) -> Iterator[Tensor]:
    """Yield the tensors whose gradients a backward pass from a result would make.

    Args:
        result: Output of operations that autograd recorded.
    """
    waiting, seen = [result.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting.extend(following for following, _ in node.next_functions)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
