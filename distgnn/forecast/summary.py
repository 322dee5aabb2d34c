"""Bytes and memory of an epoch on a partition, as values for programs and people."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distgnn.forecast.memory import device_bytes, memory_of_ranks
from distgnn.forecast.traffic import bytes_of_legs, forecast, forecast_of_widths, screened_bytes
from distgnn.training.data.info import DataInfo
from distgnn.training.tasks.tasks import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.exchange.codec import HaloCodecs
    from distgnn.forecast.traffic import Forecast, LayerRows
    from distgnn.partition.directory.store import Manifest
    from distgnn.training.config.settings import TrainConfig

DEFAULT_WIDTHS = (64, 64)
"""Widths of the sums that are predicted where the graph has nothing to train on."""


def summarize(
    directory: str | os.PathLike[str],
    manifest: Manifest,
    config: TrainConfig | None,
    *,
    widths: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Predict the traffic and memory of an epoch.

    Args:
        directory: Partition directory.
        manifest: Manifest of the partition.
        config: Settings of the run; not looked at where widths are given.
        widths: Widths of the rows that layers sum over all edges, instead of a model; where the
            graph has nothing to train on, None stands for two layers of 64 columns.

    Returns:
        JSON values by name.

    Raises:
        InputError: If the run cannot be, or a part is damaged.
    """
    has_inputs = manifest.num_features or (config is not None and config.model.kind.is_typed)
    has_labels = manifest.has_labels and manifest.num_splits
    is_trainable = has_inputs and (has_labels or manifest.has_links)
    if widths is None and not is_trainable:
        widths = DEFAULT_WIDTHS
    if widths is not None:
        found, about = forecast_of_widths(manifest, widths), None
    else:
        assert config is not None, "a run or widths"
        found = forecast(directory, manifest, config)
        assert found.model is not None, "no widths alone were given"
        about = asdict(found.model.config)
        about |= {"algorithm": config.algorithm, "features_dtype": config.features_dtype}
        about |= {"halo": config.halo, "weights": config.weights}
    per_epoch, between = found.bytes_per_epoch, found.bytes_between / found.num_bins
    return {
        "model": about,
        "layer_widths": [layer.width for layer in found.layers],
        "halo_bytes_per_epoch": int(per_epoch) if per_epoch.is_integer() else per_epoch,
        "eval_halo_bytes": found.evaluation_bytes if about else None,
        "screened_halo_bytes": screened_bytes(found, config) if about else None,
        "weight_bytes_per_epoch": found.weight_bytes if about else None,
        "sends_at_most": found.rule.sends_at_most,
        "weights_at_most": config is not None and config.weight_rule.sends_at_most,
        "halo_bytes_sent_per_rank": between.sum(axis=1).tolist(),
        "halo_bytes_received_per_rank": between.sum(axis=0).tolist(),
        "halo_bytes_between": between.tolist(),
        "memory_bytes_per_rank": memory_of_ranks(manifest, found),
        "device_bytes_per_rank": _device_bytes(manifest, config if about else None),
        "layers": _layer_values(found),
        "savings": list(found.savings),
    }


def _device_bytes(manifest: Manifest, config: TrainConfig | None) -> dict[str, list[int]] | None:
    """Predict what each rank takes on a CUDA device, by what --features-on may be there."""
    if config is None or manifest.has_sparse_features:
        return None
    ends = DataInfo.of(manifest)
    config = resolve(config, ends)
    return {
        where: [device_bytes(config, ends, part, features_on=where) for part in manifest.parts]
        for where in ("device", "host")
    }


def _layer_values(found: Forecast) -> list[dict[str, Any]]:
    """Describe the rows and bytes of each layer of all ranks, while each bin has a turn."""
    forward = found.rule.forward.codec
    return [
        {
            "width": layer.width,
            "edge_fraction": fraction,
            "read_rows": int(rows.read.sum()) if layer.legs else 0,
            "write_rows": int(rows.write.sum()) if layer.legs else 0,
            "forward_bytes": int(bytes_of_legs(layer.forward, rows, forward).sum()),
            "backward_bytes": _backward_bytes(layer, rows, found.rule.codecs),
        }
        for layer, rows, fraction in zip(
            found.layers, found.rows, found.edge_fractions, strict=True
        )
    ]


def _backward_bytes(layer: LayerTraffic, rows: LayerRows, codecs: HaloCodecs) -> int:
    """Return what a backward pass sends, with what it sends of the forward pass once more."""
    again = bytes_of_legs(layer.recomputed, rows, codecs.forward)
    return int((again + bytes_of_legs(layer.backward, rows, codecs.backward)).sum())
