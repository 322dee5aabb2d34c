"""The page about a partition directory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from distgnn.machine.units import human_bytes
from distgnn.pages.charts import columns, heat_map
from distgnn.pages.figures import Figure, tiles
from distgnn.pages.markup import Html, figure, folded, page, pair, section, table, tag
from distgnn.pages.text import human_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# A drawing of more cells takes megabytes, and shows no more.
_MAX_CELLS = 96
_BALANCES = ("edge_balance", "vertex_balance", "clone_balance", "train_balance")


def partition_page(values: Mapping[str, Any]) -> str:
    """Describe a partition and the traffic of training on it.

    Args:
        values: Output of `distgnn inspect --json`.

    Returns:
        An HTML document.
    """
    name, num_parts = values["name"], values["num_parts"]
    content = [
        tiles(_figures(values)),
        section("Traffic", *_traffic(values)),
        section("Ranks", *_ranks(values)),
        section("Partition", _facts(values)),
    ]
    options = values["options"]
    if options:
        words = {None: "-", True: "yes", False: "no"}
        rows = [
            (key, words[value] if value is None or isinstance(value, bool) else value)
            for key, value in options.items()
        ]
        content.append(section("Options", table(["option", "value"], rows, caption="Method")))
    return page(f"{name} in {num_parts} part{'s' * (num_parts != 1)}", *content)


def _figures(values: Mapping[str, Any]) -> list[Figure]:
    factor, balance = values["replication_factor"], values["edge_balance"]
    return [
        Figure("vertices", human_count(values["num_vertices"])),
        Figure("edges", human_count(values["num_edges"])),
        Figure("replication factor", f"{factor:.3f}", "copies of a vertex"),
        Figure("halo rows", human_count(values["halo_rows"]), "of all parts"),
        Figure("edge balance", f"{balance:.3f}", "largest over mean"),
        Figure("sent", human_bytes(values["halo_bytes_per_epoch"]), "rows of an epoch"),
    ]


def _facts(values: Mapping[str, Any]) -> Html:
    halo, cut = values["halo_rows"], values["halo_rows_at_destination"]
    facts = [
        ("method", f"{values['method']}, seed {values['seed']}"),
        ("order of vertices", values["order"]),
        ("halo rows", f"{human_count(halo)} (all edges at their destination: {human_count(cut)})"),
        *((name.replace("_", " "), f"{values[name]:.3f}") for name in _BALANCES),
    ]
    caption = "What was cut, and how well; a balance is the largest part over the mean"
    return tag("div", table(["fact", "value"], facts, caption=caption), class_="facts")


def _traffic(values: Mapping[str, Any]) -> list[Html]:
    model = values["model"]
    what = (
        f"sums of rows of {values['layer_widths']} columns over all edges"
        if model is None
        else f"{model['model']}, {model['layers']} layers, {model['hidden']} hidden columns, "
        f"{model['algorithm']}"
    )
    total = values["halo_bytes_per_epoch"]
    facts = [("model", what), ("sent per epoch by all ranks", human_bytes(total))]
    if values["eval_halo_bytes"] is not None:
        facts.append(("sent per evaluation", human_bytes(values["eval_halo_bytes"])))
    if values["weight_bytes_per_epoch"] is not None:
        facts.append(("sent of weights per epoch", human_bytes(values["weight_bytes_per_epoch"])))
    facts += [("saving", line) for line in values["savings"]]
    caption = "What an epoch will send: computed, and what training counts"
    shown = [tag("div", table(["fact", "value"], facts, caption=caption), class_="facts")]
    shown.append(_layers(values["layers"]))
    between = values["halo_bytes_between"]
    if len(between) >= 2:
        shown.append(_matrix(between))
    return shown


def _layers(layers: Sequence[Mapping[str, Any]]) -> Html:
    header = ["layer", "columns", "share of edges", "rows read", "rows written"]
    rows = [
        (
            number,
            layer["width"] or "-",
            f"{100 * layer['edge_fraction']:.0f} %",
            human_count(layer["read_rows"]),
            human_count(layer["write_rows"]),
            human_bytes(layer["forward_bytes"]),
            human_bytes(layer["backward_bytes"]),
        )
        for number, layer in enumerate(layers)
    ]
    return table([*header, "forward", "backward"], rows, caption="Layers, over all ranks")


def _matrix(between: Sequence[Sequence[float]]) -> Html:
    most, sender, receiver = max(
        (value, p, q) for p, row in enumerate(between) for q, value in enumerate(row)
    )
    description = (
        f"Bytes per epoch between any two of {len(between)} ranks; the most, {human_bytes(most)}, "
        f"go from rank {sender} to rank {receiver}."
    )
    title = "Bytes per epoch from rank to rank"
    if len(between) > _MAX_CELLS:
        size = -(-len(between) // _MAX_CELLS)
        groups = [
            range(first, min(first + size, len(between))) for first in range(0, len(between), size)
        ]
        cells = [[math.fsum(between[p][q] for p in a for q in b) for b in groups] for a in groups]
        note = f"{description} A cell is the sum of {size} by {size} ranks."
        drawn = heat_map(cells, description=note, write=human_bytes, groups=groups)
        return figure(title, drawn, note=note)
    ranks = range(len(between))
    rows = [(p, *(human_bytes(value) for value in row)) for p, row in enumerate(between)]
    return figure(
        title,
        heat_map(between, description=description, write=human_bytes),
        folded("As a table", table(["from \\ to", *ranks], rows, caption=description)),
        note=description,
    )


def _ranks(values: Mapping[str, Any]) -> list[Html]:
    parts = values["parts"]
    shown: list[tuple[str, list[float], Callable[[float], str]]] = [
        ("edges", [part["num_edges"] for part in parts], human_count),
        ("roots", [part["num_roots"] for part in parts], human_count),
        ("leaves", [part["num_leaves"] for part in parts], human_count),
        ("bytes sent per epoch", values["halo_bytes_sent_per_rank"], human_bytes),
        ("bytes received per epoch", values["halo_bytes_received_per_rank"], human_bytes),
        ("memory in bytes", values["memory_bytes_per_rank"], human_bytes),
    ]
    drawn = [figure(name.capitalize(), _columns(name, *rest)) for name, *rest in shown]
    header = ["rank", *(name for name, _, _ in shown), "reuse"]
    rows = [
        (
            rank,
            *(write(numbers[rank]) for _, numbers, write in shown),
            f"{values['row_reuse'][rank]:.1f}",
        )
        for rank in range(len(parts))
    ]
    caption = "Ranks; reuse is how often a row is read for each fetch into 1 MiB of cache"
    return [pair(*drawn), table(header, rows, caption=caption)]


def _columns(name: str, values: Any, write: Any) -> Html:
    least, most = min(values), max(values)
    description = f"{name} of {len(values)} ranks, from {write(least)} to {write(most)}"
    return columns(values, name=name, description=description, write=write)
