"""Sorting of numbers by their digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distgnn import _partitioner

LEAST, MOST = -(2**63), 2**63 - 1


@given(
    arrays(
        np.int64,
        st.integers(0, 300),
        elements=st.one_of(st.integers(-3, 3), st.integers(LEAST, MOST), st.just(MOST)),
    )
)
def test_any_numbers_come_in_ascending_order(numbers: np.ndarray) -> None:
    expected = np.sort(numbers)
    _partitioner.sort_numbers(numbers)
    assert np.array_equal(numbers, expected)


# Around the sizes at which it goes over to another way.
@pytest.mark.parametrize("size", [64, 65, 2**14, 2**14 + 1, 70_000])
@pytest.mark.parametrize("bits", [0, 1, 9, 10, 11, 12, 27, 46, 63])
def test_many_numbers_of_any_width_come_in_ascending_order(size: int, bits: int) -> None:
    generator = np.random.default_rng(bits)
    numbers = generator.integers(0, 2**bits, size) - 2**bits // 2
    # Half of them are close together, as the edges of a hub.
    numbers[: size // 2] = numbers[0] + generator.integers(0, 2, size // 2)
    generator.shuffle(numbers)
    expected = np.sort(numbers)
    _partitioner.sort_numbers(numbers)
    assert np.array_equal(numbers, expected)
