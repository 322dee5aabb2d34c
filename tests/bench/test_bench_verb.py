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
    with pytest.raises(
        InputError, match="--widths must be positive numbers such as 16,64, at most"
    ):
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


@pytest.mark.parametrize("text", ["16,99999999999999", "2147483648"])
def test_a_width_that_is_too_large_is_refused(text):
    with pytest.raises(InputError, match="at most 2147483647, got"):
        run("--widths", text)


def test_more_threads_than_any_machine_has_are_refused():
    with pytest.raises(InputError, match=r"--threads must be positive .* at most 1024, got '1025'"):
        run("--threads", "1025")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "is a directory"), ("no/x.json", "there is no directory"), ("shut/x", "is not writable")],
)
@pytest.mark.parametrize("flag", ["--out", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path, monkeypatch, flag, name, reason
):
    monkeypatch.setattr("os.access", lambda file, mode: "shut" not in str(file))
    (tmp_path / "shut").mkdir()
    with pytest.raises(InputError, match=f"cannot write .*{reason}.*; choose another {flag}"):
        run_any("accuracy", "nosuch", flag, str(tmp_path / name))


def run_any(*words):
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    return bench_verb.run(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("epoch", "--quick"), "--quick has no effect on bench epoch, only on kernels, codecs;"),
        (("accuracy", "cora", "--seed", "1"), "--seed has no effect on bench accuracy, only on"),
        (("kernels", "--bits", "4"), "--bits has no effect on bench kernels, only on codecs;"),
        (("report", "x", "--slow-s", "1"), "--slow-s has no effect on bench report, only on ker"),
    ],
)
def test_a_flag_of_another_benchmark_is_refused(words, sentence):
    with pytest.raises(InputError, match=sentence):
        run_any(*words)


def test_each_flag_is_read_by_a_benchmark():
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    flags = set(vars(parser.parse_args(["report"]))) - set(bench_verb._ALL_READ)
    assert flags == {name for names in bench_verb._READ.values() for name in names}
