"""The page of results, and where they come from."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from distgnn.bench import markdown, origin
from distgnn.cli import bench_verb
from distgnn.datasets import InputError


def run(*arguments):
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    return bench_verb.run(parser.parse_args(list(arguments)))


@pytest.fixture
def results(tmp_path):
    """Files of a small run of each kind."""
    twin = ("--shapes=arxiv", "--orders=random", "--scale=0.001", "--threads=1", "--rounds=2")
    files = [str(tmp_path / name) for name in ("kernels.json", "epoch.json")]
    some = ("--widths=16,64", "--operations=sum,max", "--peers=scipy", "--fresh-memory")
    assert run("kernels", *twin, *some, "--out", files[0]) == 0
    assert run("epoch", *twin, "--layers=2", "--hidden=4", "--peers=", "--out", files[1]) == 0
    return files


def test_a_page_has_ratios_of_all_operations_and_epochs(results, tmp_path):
    page = tmp_path / "RESULTS.md"
    assert run("report", *results, "--out", str(page)) == 0
    text = page.read_text()
    summaries = [line for line in text.splitlines() if "| all |" in line]
    assert [line.split(" | ")[:2] for line in summaries] == [
        ["| max", "backward"],
        ["| max", "forward"],
        ["| sum", "backward"],
        ["| sum", "forward"],
    ]
    assert text.count("| arxiv-random | sum | forward |") == 2
    assert "commit" in text
    assert "| distgnn |" in text
    assert "- receptive field: " in text
    (ours,) = (line for line in text.splitlines() if line.startswith("| distgnn |"))
    assert float(ours.split(" | ")[5]) > 50
    widths = {len(line.split("|")) for line in text.splitlines() if line.startswith("| max")}
    header = next(line for line in text.splitlines() if line.startswith("| operation"))
    assert widths == {len(header.split("|"))}


def test_a_page_is_printed_without_a_file_to_write(results, capsys):
    capsys.readouterr()
    assert run("report", *results) == 0
    assert capsys.readouterr().out == markdown.page([markdown.read(path) for path in results])


def test_what_was_measured_before_an_interrupt_is_written(tmp_path, monkeypatch):
    def interrupt(line):
        if "sum backward" in line:
            raise KeyboardInterrupt

    monkeypatch.setattr(bench_verb, "note", interrupt)
    path = tmp_path / "part.json"
    twin = ("--shapes=arxiv", "--orders=random", "--scale=0.001", "--threads=1", "--rounds=2")
    with pytest.raises(KeyboardInterrupt):
        run("kernels", *twin, "--peers=", "--fresh-memory", "--out", str(path))
    found = [cell["direction"] for cell in markdown.read(str(path))["cells"]]
    assert found == ["forward", "backward"]


def test_a_report_without_files_is_refused():
    with pytest.raises(InputError, match="bench report needs the files that bench kernels or"):
        run("report")


def test_files_for_a_measurement_are_refused():
    with pytest.raises(InputError, match=r"bench kernels reads no files, got 'x\.json'; name"):
        run("kernels", "x.json")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"what": "else"}'])
def test_a_file_without_results_is_refused(text, tmp_path):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"cannot be read as JSON|holds no results; give files"):
        markdown.read(str(path))


def test_the_commit_is_that_of_the_repository_which_tracks_the_file(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    assert origin.commit(file).startswith("of version ")

    def git(*words):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *settings, *words], capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    git("init", "--quiet")
    assert origin.commit(file).startswith("of version ")
    git("add", "module.py")
    git("commit", "--quiet", "-m", "x")
    short = git("rev-parse", "--short=10", "HEAD")
    assert origin.commit(file) == short
    file.write_text("x = 2\n")
    assert origin.commit(file) == f"{short}, changed"
