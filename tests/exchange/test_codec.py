"""Codecs of rows: their texts and the bytes of a row."""

from __future__ import annotations

import pytest

from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs


def test_every_codec_has_a_text_that_says_how_it_rounds():
    specs = [CodecSpec(bits) for bits in (32, 16, 8, 4, 2, 1)]
    assert [spec.text for spec in specs] == ["exact", "bf16", "int8", "int4", "int2", "int1"]
    assert CodecSpec(4, is_random=False).text == "int4(round=near)"


@pytest.mark.parametrize("bits", [32, 16, 1])
def test_codecs_without_steps_are_equal_however_they_round(bits):
    assert CodecSpec(bits, is_random=False) == CodecSpec(bits)
    assert CodecSpec(bits, is_random=False).text == CodecSpec(bits).text
    assert not HaloCodecs(CodecSpec(bits)).is_random
    assert HaloCodecs(EXACT, CodecSpec(8)).is_random


def test_bytes_of_a_row_are_a_header_codes_and_exact_columns():
    rows = {bits: CodecSpec(bits).row_bytes(256, 4) for bits in (32, 16, 8, 4, 2, 1)}
    assert rows == {32: 1024, 16: 512, 8: 260, 4: 132, 2: 68, 1: 36}
    assert CodecSpec(4).row_bytes(21, 4, 4) == 4 + 9 + 16
    assert CodecSpec(16).row_bytes(21, 4, 4) == 34 + 16
    assert CodecSpec(4).row_bytes(32, 2) == 4 + 16


def test_narrow_rows_ids_and_rows_of_no_more_bits_than_the_code_travel_as_they_are():
    assert CodecSpec(4).row_bytes(15, 4) == 60
    assert CodecSpec(4).row_bytes(16, 4) == 12
    assert CodecSpec(4).row_bytes(19, 4, 4) == 76, "the exact columns do not make rows wide"
    assert CodecSpec(4, least_columns=1).row_bytes(1, 4) == 5
    assert CodecSpec(4).row_bytes(64, 8) == 512, "ids are exact"
    assert CodecSpec(16).row_bytes(64, 2) == 128
    assert CodecSpec(32).row_bytes(64, 2) == 128
