"""Scores and masks that edges have of their own in attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from distgnn.gpu.launch import expect
from distgnn.gpu.rows import column_hash
from distgnn.kernels.seeds import Seed, mixed_seed

if TYPE_CHECKING:
    from torch import Tensor


@triton.jit
def mask_of_edges(
    like,
    key_ptr,
    mixed_seed,
    seed_ptr,
    threshold,
    edge,
    is_edge,
    head,
    SCALE: tl.constexpr,
    HAS_PLACE: tl.constexpr,
):
    """Return the factors of weights by edge and head, of the type of `like`."""
    if HAS_PLACE:
        mixed_seed = tl.load(seed_ptr).to(tl.uint64, bitcast=True)
    key = tl.load(key_ptr + edge, mask=is_edge, other=0)
    is_kept = column_hash(mixed_seed, key[:, None], head[None, :]) >= threshold
    return tl.where(is_kept, tl.full(like.shape, SCALE, like.dtype), 0)


def of_edges(
    edge_score: Tensor | None,
    edge_key: Tensor | None,
    seed: int,
    probability: float,
    shape: tuple[int, int],
) -> dict[str, Any]:
    """Check what edges have of their own, and name it as kernels do.

    Args:
        edge_score: (num_edges, num_heads), or None.
        edge_key: (num_edges,) int64. Of the mask; None for none.
        seed: Seed of the mask. A `Seed` with a place is read from there by the kernel.
        probability: Probability of the mask.
        shape: (num_edges, num_heads).

    Raises:
        ValueError: If a shape is another one, or the probability is out of range.
    """
    if not 0 <= probability < 1:
        raise ValueError(f"probability must be in [0, 1), got {probability}")
    if edge_score is not None:
        expect("edge_score", edge_score, *shape)
    if edge_key is not None:
        expect("edge_key", edge_key, shape[0])
    place = seed.place if isinstance(seed, Seed) else None
    return {
        "edge_score_ptr": edge_score,
        "key_ptr": edge_key,
        "mixed_seed": mixed_seed(seed),
        "seed_ptr": place,
        "threshold": int(probability * 2**32),
        "SCALE": 1 / (1 - probability),
        "HAS_SCORE": edge_score is not None,
        "HAS_KEY": edge_key is not None,
        "HAS_PLACE": place is not None,
    }
