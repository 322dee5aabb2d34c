"""Text of `distgnn inspect` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.api.directories import rows_per_level
from distgnn.cli.output import bar, human_bytes, pairs, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distgnn.partition.directory.store import Manifest

MAX_MATRIX = 16
"""Parts up to which the traffic between any two is printed."""
_BAR_WIDTH = 16


def quality_lines(
    manifest: Manifest, reuse: Sequence[float] | None = None, least_rows: int | None = None
) -> list[str]:
    """Describe a partition for people.

    Args:
        manifest: Manifest of the partition.
        reuse: (num_parts,) Reads of a row of each part for each fetch; None if not estimated.
        least_rows: Fewest rows for these roots; None if not found.

    Returns:
        Lines of text.
    """
    quality = manifest.quality
    saved = quality["halo_rows_at_destination"]
    least = {}
    if least_rows is not None:
        least = {"least_halo_rows": _beside_least(quality["halo_rows"], least_rows)}
    lines = pairs(
        {
            "graph": f"{manifest.name}, {manifest.num_vertices} vertices, "
            f"{manifest.num_edges} edges",
            "method": f"{manifest.method}, {manifest.num_parts} parts, seed {manifest.seed}",
            "order": manifest.order,
            "replication_factor": f"{quality['replication_factor']:.3f}",
            "halo_rows": f"{quality['halo_rows']} (all edges at their destination: {saved})",
            **least,
            "edge_balance": f"{quality['edge_balance']:.3f}",
            "vertex_balance": f"{quality['vertex_balance']:.3f}",
            "clone_balance": f"{quality['clone_balance']:.3f}",
            "train_balance": f"{quality['train_balance']:.3f}",
        }
    )
    if per_level := rows_per_level(manifest):
        shown = ", then ".join(map(str, per_level))
        lines += pairs({"halo_rows_per_level": f"{shown} (first between the largest groups)"})
    header = ["part", "edges", "", "roots", "", "leaves", ""]
    counts = [[part.num_edges, part.num_roots, part.num_leaves] for part in manifest.parts]
    most = [max(column) for column in zip(*counts, strict=True)]
    rows: list[list[object]] = [
        [number, *(cell for pair in _with_bars(row, most) for cell in pair)]
        for number, row in enumerate(counts)
    ]
    if reuse is not None:
        header.append("reuse")
        rows = [[*row, f"{value:.1f}"] for row, value in zip(rows, reuse, strict=True)]
    return [*lines, "", *table(header, rows)]


def _beside_least(rows: int, least: int) -> str:
    """Describe the fewest rows with edges at their ends, and how far the rows are from them."""
    what = f"{least} for these roots while each edge lives at one of its ends"
    if rows == least:
        return f"{what}, as many as halo_rows"
    side = "above" if rows > least else "below"
    return f"{what}; halo_rows are {abs(rows / max(least, 1) - 1):.1%} {side}"


def _with_bars(values: Sequence[int], most: Sequence[int]) -> list[tuple[object, str]]:
    return [
        (value, bar(value, largest, _BAR_WIDTH).ljust(_BAR_WIDTH))
        for value, largest in zip(values, most, strict=True)
    ]


def forecast_lines(values: Mapping[str, Any]) -> list[str]:
    """Describe the traffic of an epoch.

    Args:
        values: Values of `distgnn.inspect`.

    Returns:
        Lines of text.
    """
    lines = [_headline(values), *(f"  {saving}" for saving in values["savings"]), ""]
    header = ["layer", "width", "of edges", "rows read", "rows written", "forward", "backward"]
    lines += table(
        header,
        [
            [
                number,
                layer["width"] or "-",
                f"{100 * layer['edge_fraction']:.0f} %",
                layer["read_rows"],
                layer["write_rows"],
                human_bytes(layer["forward_bytes"]),
                human_bytes(layer["backward_bytes"]),
            ]
            for number, layer in enumerate(values["layers"])
        ],
    )
    sent, received = values["halo_bytes_sent_per_rank"], values["halo_bytes_received_per_rank"]
    memory, reuse = values["memory_bytes_per_rank"], values["row_reuse"]
    total = human_bytes(sum(sent))
    most = f"at most {total} by all ranks" if values["sends_at_most"] else ""
    facts = {"sent per epoch": most or f"{total} by all ranks, exactly"}
    if values["eval_halo_bytes"] is not None:
        facts["per evaluation"] = evaluation_text(values)
    if values["weight_bytes_per_epoch"] is not None:
        most = "at most " * values["weights_at_most"]
        total = human_bytes(values["weight_bytes_per_epoch"])
        facts["weights per epoch"] = f"{most}{total} by all ranks"
    facts["memory per rank"] = f"{human_bytes(max(memory))} at most, without libraries"
    facts["reuse per rank"] = f"{min(reuse):.1f} reads at least for each fetch into 1 MiB of cache"
    lines += ["", *(f"  {line}" for line in pairs(facts)), ""]
    header = ["rank", "sends", "", "receives", "memory"]
    most = max([*sent, 1])
    lines += table(
        header,
        [
            [
                rank,
                human_bytes(own),
                bar(own, most, _BAR_WIDTH).ljust(_BAR_WIDTH),
                human_bytes(received[rank]),
                human_bytes(memory[rank]),
            ]
            for rank, own in enumerate(sent)
        ],
    )
    return lines + _matrix_lines(values["halo_bytes_between"])


def evaluation_text(values: Mapping[str, Any]) -> str:
    """Say what an evaluation sends.

    Args:
        values: Values of `distgnn.inspect` or `distgnn.plan`.

    Returns:
        Words without a full stop.
    """
    exact, screened = values["eval_halo_bytes"], values["screened_halo_bytes"]
    if screened is None:
        return human_bytes(exact)
    return (
        f"{human_bytes(screened)} screened, and {human_bytes(exact)} where it is confirmed: "
        f"{human_bytes(screened + exact)} at most"
    )


def _headline(values: Mapping[str, Any]) -> str:
    model = values["model"]
    if model is None:
        widths = ", ".join(map(str, values["layer_widths"]))
        return f"for layers that sum rows of width {widths} over all edges (fp32, cd-0):"
    heads = f", {model['heads']} heads" if model["model"] in ("gat", "gatv2") else ""
    return (
        f"for {model['model']}, {model['layers']} layers, {model['hidden']} hidden columns{heads} "
        f"({model['activations_dtype']}, {model['algorithm']}):"
    )


def _matrix_lines(between: Sequence[Sequence[float]]) -> list[str]:
    """Describe the traffic between any two ranks, where there are few parts."""
    num_parts = len(between)
    if not 2 <= num_parts <= MAX_MATRIX:
        return []
    rows = [
        [f"{rank} sends", *(human_bytes(cell) if cell else "." for cell in row)]
        for rank, row in enumerate(between)
    ]
    return ["", *table(["per epoch", *(f"to {rank}" for rank in range(num_parts))], rows)]
