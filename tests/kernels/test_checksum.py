from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn import kernels

# RFC 3720, B.4, and the check value of the catalogue of CRCs.
KNOWN = {
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    b"": 0,
}
# Around a word, around three short and three long streams, and more than one part for each thread.
SIZES = (1, 3, 7, 8, 9, 24, 3071, 3072, 3073, 98303, 98304, 101385, 3 * 131072 - 1, 3 * 131072 + 5)


def tensor_of(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)


@pytest.mark.parametrize("data", list(KNOWN))
def test_published_values(data):
    assert kernels.checksum(tensor_of(data)) == KNOWN[data] == reference.crc32c(data)


@pytest.fixture(scope="module")
def remainders():
    """Bytes of every size, and their plain remainders: a second of work, for all threads."""
    data = np.random.default_rng(0).bytes(max(SIZES) + 3)
    slices = {size: slice(size % 4, size % 4 + size) for size in SIZES}
    return data, {size: (part, reference.crc32c(data[part])) for size, part in slices.items()}


def test_plain_remainders_at_every_size_and_alignment(num_threads, remainders):
    data, expected = remainders
    for size, (part, remainder) in expected.items():
        assert kernels.checksum(tensor_of(data)[part]) == remainder, size


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]
)
def test_the_bytes_of_any_type_count(dtype):
    rows = torch.arange(60).reshape(5, 12).to(dtype).requires_grad_(dtype.is_floating_point)
    data = rows.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
    assert kernels.checksum(rows) == reference.crc32c(data)
    assert kernels.checksum(rows[0, 0]) == reference.crc32c(data[: rows.element_size()])


def test_up_to_three_flipped_bits_and_short_runs_change_it():
    draw = np.random.default_rng(1)
    data = draw.integers(256, size=20000, dtype=np.uint8)
    rows = torch.from_numpy(data)
    told = kernels.checksum(rows)
    for count in (1, 2, 3):
        for _ in range(300):
            bits = draw.choice(8 * len(data), count, replace=False)
            np.bitwise_xor.at(data, bits // 8, np.uint8(1) << (bits % 8).astype(np.uint8))
            assert kernels.checksum(rows) != told
            np.bitwise_xor.at(data, bits // 8, np.uint8(1) << (bits % 8).astype(np.uint8))
    for _ in range(300):
        start = int(draw.integers(len(data) - 4))
        kept = data[start : start + 4].copy()
        data[start : start + 4] ^= draw.integers(1, 256, 4, dtype=np.uint8)
        assert kernels.checksum(rows) != told
        data[start : start + 4] = kept
    assert kernels.checksum(rows) == told


def test_what_is_no_block_of_memory_here_is_refused():
    with pytest.raises(ValueError, match=r"must be contiguous, got strides .*contiguous\(\)"):
        kernels.checksum(torch.zeros(4, 4).T[1:])
    with pytest.raises(ValueError, match=r"must be on the CPU, got device meta; call values.cpu"):
        kernels.checksum(torch.zeros(4, device="meta"))
