from __future__ import annotations

import argparse
import json

import pytest
import torch

from distgnn.bench import codecs, markdown
from distgnn.cli import bench_verb
from distgnn.datasets import InputError
from distgnn.kernels import codec


def run(*arguments):
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    small = ["codecs", "--quick", "--rounds=1", "--fresh-memory", "--widths=16"]
    return bench_verb.run(parser.parse_args([*small, *arguments]))


def test_every_code_is_timed_in_both_directions(capsys, tmp_path):
    path = tmp_path / "codecs.json"
    assert run("--json", "--out", str(path)) == 0
    values = json.loads(capsys.readouterr().out)
    assert json.loads(path.read_text())["race"] == values["race"]
    cases = [(found["bits"], found["rounding"], found["direction"]) for found in values["results"]]
    both = {
        bits: ["random", "nearest"] if bits in (8, 4, 2) else ["nearest"] for bits in codec.BITS
    }
    assert cases == [
        (bits, rounding, direction)
        for bits in codec.BITS
        for rounding in both[bits]
        for direction in ("encode", "decode")
    ]
    for found in values["results"]:
        contestants = {"memcpy", "torch", "crc32c", "zlib"} | ({"gather"} & set(found["ms"]))
        assert set(found["ratio"]) == contestants
        assert ("gather" in contestants) == (found["direction"] == "encode")
        assert found["num_rows"] == 4 * 2**20 // 64 // 2
        assert found["gigabytes_per_s"] > 0
    assert "| encode | 16 | 16 | nearest | 1 |" in markdown.page([markdown.read(str(path))])


def test_a_line_a_case_is_printed(capsys):
    assert run("--bits", "4", "--threads", "1,2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(codecs.HEADER)
    assert [line.split()[:5] for line in lines[1:9]] == [
        [direction, "16", "4", rounding, threads]
        for threads in "12"
        for rounding in ("random", "nearest")
        for direction in ("encode", "decode")
    ]


@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize("bits", codec.BITS)
def test_plain_torch_does_the_same_work(bits, is_random):
    x = torch.randn(50, 27, generator=torch.Generator().manual_seed(0))
    picked = torch.tensor([3, 49, 0], dtype=torch.int32)
    coded = codecs.plain_encode(x, picked, bits, is_random=is_random)
    values, rows = codecs.plain_decode(coded, 27, bits), x[picked.long()]
    if bits == 1:
        out = torch.empty(3, codec.row_bytes(27, 1), dtype=torch.uint8)
        codec.encode_rows(x, picked, 3, bits=1, seed=None, out=out)
        assert torch.equal(coded[2], out[:, 4:])
    elif bits == codec.BITS[0]:
        assert torch.equal(values, rows.bfloat16().float())
    else:
        assert coded[2].shape[1] == -(-27 * bits // 8)
        unit = (rows.amax(1) - rows.amin(1)) / (2**bits - 1)
        assert ((values - rows).abs().amax(1) <= unit * (1.001 if is_random else 0.501)).all()


def test_bits_without_a_code_are_refused():
    with pytest.raises(InputError, match="--bits must be among 16, 8, 4, 2, 1, got 3"):
        run("--bits", "3")
