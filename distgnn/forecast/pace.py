"""How long an epoch will take here, modelled from a short trial of this machine's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from distgnn import kernels
from distgnn.machine.trials import best_seconds
from distgnn.nn.linear import Linear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.forecast.traffic import Forecast
    from distgnn.machine.loopback import MessageCost
    from distgnn.nn.models import GNN
    from distgnn.partition.directory.store import Part

# Of a trial: some hundredths of a second at widths of 16 to 256.
_PROBE_EDGES = 1 << 20
_PROBE_ROWS = 1 << 14


class Pace(NamedTuple):
    """Seconds of this machine's kernels.

    Attributes:
        edge_s: Seconds of one column of one edge of a sum.
        product_s: Seconds of one multiplication and addition of a dense product.
    """

    edge_s: float
    product_s: float


class Link(NamedTuple):
    """Link between the ranks.

    Attributes:
        bytes_per_s: Bytes per second of a rank, in each direction.
        latency_s: Seconds from sending a short message to having it: the wire, the system, and
            waking up the receiver.
    """

    bytes_per_s: float
    latency_s: float

    def seconds(self, num_bytes: float) -> float:
        """Return the time of a message.

        Args:
            num_bytes: Its size.
        """
        return num_bytes / self.bytes_per_s + self.latency_s


def probe(part: Part, width: int, *, columns: tuple[int, int]) -> Pace:
    """Time a sum over edges of a part, and a dense product.

    Args:
        part: The rows from the first on are walked until a million edges, with the sources that
            they have.
        width: Width of the rows that are summed.
        columns: Columns of a product, in and out.

    Returns:
        The best of three rounds each.
    """
    num_rows = int(np.searchsorted(part.indptr, _PROBE_EDGES, side="right")) - 1
    num_rows = max(num_rows, min(part.num_clones, 1))
    num_edges = int(part.indptr[num_rows])
    sources, indices = np.unique(part.indices[:num_edges], return_inverse=True)
    indptr = torch.from_numpy(np.array(part.indptr[: num_rows + 1], dtype=np.int64))
    graph = kernels.Csr(indptr, torch.from_numpy(indices.astype(np.int32)), len(sources))
    x, out = torch.ones(max(len(sources), 1), width), torch.empty(num_rows, width)
    sum_s = best_seconds(lambda: kernels.spmm_sum(graph, None, x, out, accumulate=False))
    return Pace(sum_s / max(num_edges * width, 1), product_seconds(*columns))


def product_seconds(num_inputs: int, num_outputs: int) -> float:
    """Time a dense product of some thousand rows.

    Args:
        num_inputs: Columns of the rows.
        num_outputs: Columns of the result.

    Returns:
        Seconds of one multiplication and addition.
    """
    linear, rows = Linear(num_inputs, num_outputs), torch.ones(_PROBE_ROWS, num_inputs)
    with torch.no_grad():
        seconds = best_seconds(lambda: linear(rows))
    return seconds / (_PROBE_ROWS * num_inputs * num_outputs)


def compute_seconds(
    found: Forecast, model: GNN, pace: Pace, *, density: float = 1.0
) -> NDArray[np.float64]:
    """Model how long each rank computes in an epoch.

    A layer walks its edges once forward, and once backward where that moves rows. Each weight is
    multiplied with the layer's rows once forward and twice backward (once in the first layer, whose
    input has no gradient). Attention is counted as a sum, though it takes longer. Activations, the
    loss and the optimizer are left out.

    Args:
        found: The epoch.
        model: Model that is trained.
        pace: Pace from `probe`.
        density: Share of the entries of the input that are stored.

    Returns:
        (num_parts,) float64 seconds.
    """
    seconds = np.zeros(len(found.evaluation_rows.edges))
    convolutions = [*model.hidden, model.last][: len(found.layers)]
    for number, (conv, layer, rows) in enumerate(
        zip(convolutions, found.layers, found.rows, strict=True)
    ):
        passes = 1 + (len(layer.backward + layer.recomputed) > 0)
        seconds += passes * layer.width * rows.edges * pace.edge_s
        weights = sum(weight.numel() for weight in conv.parameters() if weight.dim() == 2)
        products = 2 * density if number == 0 else 3
        seconds += products * weights * rows.targets * pace.product_s
    return seconds


def wire_seconds(found: Forecast, link: Link) -> NDArray[np.float64]:
    """Model how long each rank's rows are on the wire in an epoch.

    Rows leave and arrive at the same time, at full speed. What goes to several ranks goes at the
    same time, so that each half of an exchange has the latency of one message.

    Args:
        found: The epoch.
        link: Link between the ranks.

    Returns:
        (num_parts,) float64 seconds.
    """
    between = found.bytes_between
    most = np.maximum(between.sum(axis=0), between.sum(axis=1)) / found.num_bins
    seconds: NDArray[np.float64] = most / link.bytes_per_s + found.num_steps * link.latency_s
    return seconds


def toll_seconds(found: Forecast, toll: MessageCost) -> NDArray[np.float64]:
    """Model how long each rank's processor works on the messages of rows in an epoch.

    Args:
        found: The epoch.
        toll: Cost of a message.

    Returns:
        (num_parts,) float64 seconds.
    """
    messages, num_bytes = (
        table.sum(axis=0) + table.sum(axis=1)
        for table in (found.messages_between, found.bytes_between / found.num_bins)
    )
    seconds: NDArray[np.float64] = messages * toll.message_s + num_bytes * toll.byte_s
    return seconds


def reduce_seconds(num_bytes: float, num_ranks: int, link: Link) -> float:
    """Model how long a ring takes to sum what every rank has.

    Args:
        num_bytes: Bytes of a rank.
        num_ranks: Number of ranks in the ring.
        link: Link between the ranks.

    Returns:
        Seconds.
    """
    steps = 2 * (num_ranks - 1)
    return steps * (num_bytes / num_ranks / link.bytes_per_s + link.latency_s)
