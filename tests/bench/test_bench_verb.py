from __future__ import annotations

import argparse
import json

import pytest

from distgnn.cli import bench_verb
from distgnn.datasets import InputError

# The allocator of the test process stays as it is.
SMALL = ["kernels", "--shapes=arxiv", "--orders=random", "--scale=0.001", "--fresh-memory"]


def run(*arguments):
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    return bench_verb.run(parser.parse_args([*SMALL, *arguments]))


def test_bench_prints_a_line_a_case_and_means(capsys):
    assert (
        run("--widths", "16,64", "--threads", "1", "--peers", "scipy", "--operations", "sum") == 0
    )
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[0].split()[-2:] == ["distgnn-bf16", "scipy"]
    # Those that were slower this time are named again at the end.
    lines = [line for line in lines if not line.startswith("slower: ")]
    cases = [line.split()[:5] for line in lines if "arxiv-random" in line and "sum" in line]
    assert cases == [
        ["arxiv-random", "sum", direction, width, "1"]
        for width in ("16", "64")
        for direction in ("forward", "backward")
    ]
    assert any("geomean" in line for line in lines)
    assert "ordered in" in output.err


def test_bench_writes_all_results_as_json(capsys, tmp_path):
    path = tmp_path / "results.json"
    arguments = ("--widths", "16", "--threads", "1", "--peers", "scipy", "--operations", "mean,max")
    assert run(*arguments, "--out", str(path), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(path.read_text())["race"] == printed["race"]
    assert [cell["operation"] for cell in printed["cells"]] == ["mean", "mean", "max", "max"]
    assert {row["peer"] for row in printed["means"]} == {"scipy"}
    assert printed["machine"]["instruction_set"]


def test_rows_in_bfloat16_may_be_named_among_the_peers(capsys):
    arguments = ("--quick", "--json", "--threads", "1", "--peers", "scipy,distgnn-bf16")
    assert run(*arguments) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["race"]["peers"] == ["scipy"]
    assert all("distgnn-bf16" in cell["ms"] for cell in values["cells"])


def test_quick_takes_sums_at_two_widths(capsys):
    assert run("--quick", "--json", "--threads", "1", "--peers", "scipy") == 0
    race = json.loads(capsys.readouterr().out)["race"]
    assert race["operations"] == ["sum"]
    assert race["widths"] == [16, 64]


@pytest.mark.parametrize("text", ["16,x", "0", ""])
def test_a_width_that_is_no_positive_number_is_refused(text):
    with pytest.raises(InputError, match="--widths must be positive numbers such as 16,64, got"):
        run("--widths", text)


def test_an_epoch_of_a_model_that_peers_have_not_is_refused():
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    arguments = parser.parse_args(["epoch", "--model", "gin"])
    with pytest.raises(
        InputError, match="--model must be one of sage, gcn, gat, gatv2, which peers have"
    ):
        bench_verb.run(arguments)


def test_an_unknown_operation_is_refused():
    with pytest.raises(InputError, match="'median' must be one of sum, mean, weighted, max"):
        run("--operations", "median", "--peers", "scipy", "--threads", "1")
