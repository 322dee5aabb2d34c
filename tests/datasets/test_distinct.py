"""Distinct numbers are those of NumPy's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from distgnn.datasets.distinct import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES = st.sampled_from([np.int64, np.uint64, np.int32, np.uint8, np.float64])


@given(
    arrays(
        _DTYPES,
        array_shapes(max_dims=2, min_side=0, max_side=20),
        elements=st.integers(0, 40),
    )
)
def test_they_ascend_and_each_comes_once(numbers: NDArray[np.int64]) -> None:
    before = numbers.copy()

    found = distinct(numbers)

    expected = np.unique(numbers)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(numbers, before)
