"""Drawn command lines: a result, or one sentence and status 2; never a traceback."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from fuzz.corpus import CORPUS
from fuzz.oracle import add_note, check_sentence, draws, in_time
from rank_jobs import ENVIRON

from distgnn.cli import build_parser, main

if TYPE_CHECKING:
    import random

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

VERBS = ("partition", "repartition", "inspect", "train", "evaluate", "predict", "embed", "export")
VERBS += ("report", "plan")
# They start processes, wait, take all of the machine, or write where others read.
LEFT_OUT = {"--restarts", "--mpirun", "--hosts", "--start-timeout", "--threads", "--log", "--help"}
LEFT_OUT |= {"--help-all", "--estimate", "--tune-kernels", "--walk-cache", "--force", "-h"}
VALUES = ("0", "1", "2", "3", "-1", "0.5", "1e-3", "nan", "inf", "1e308", "9" * 20, "", " ", "a,b")
VALUES += ("\u00e9", "\x1b[31m", "int8", "cd-2", "on", "off", "all", "auto", "/dev/null", "nowhere")
VALUES += ("x" * 5000, "every(2)", "int8+", "(", "1/2", "0.6/0.2/0.2", "8", "16")


def flags_of(verb: str) -> list[argparse.Action]:
    """The options of a verb."""
    (verbs,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    actions = verbs.choices[verb]._actions
    return [a for a in actions if a.option_strings and not LEFT_OUT & set(a.option_strings)]


def drawn_words(draw: random.Random, verb: str, places: list[str]) -> list[str]:
    """A verb, what it works on, and some options with values that may be allowed."""
    words = [verb, draw.choice(places)]
    for action in draw.sample(flags_of(verb), k=draw.choice((0, 1, 1, 2, 3))):
        words.append(draw.choice(action.option_strings))
        if action.nargs == 0:
            continue
        pool = [*VALUES, *places]
        if action.choices is not None and draw.random() < 0.7:
            pool = [str(choice) for choice in action.choices]
        elif action.default is not None and draw.random() < 0.4:
            pool = [str(action.default)]
        words[-1] += f"={draw.choice(pool)}"
    return words


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A graph, its parts and a run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    graph = str(CORPUS["npz"](tmp_path).relative_to(tmp_path))
    assert main(["partition", graph, "--parts", "2", "--out", "parts"]) == 0
    assert main(["train", graph, "--run", "run", "--epochs", "1", "--threads", "1"]) == 0
    return [graph, "parts", "run", "nowhere"]


def test_any_command_line_is_a_result_or_a_sentence(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    for seed, draw in draws("words", 400):
        verb = draw.choice(VERBS)
        words = drawn_words(draw, verb, places)
        out = f"out-{seed}"
        if verb in ("partition", "repartition", "predict", "embed", "export", "report"):
            words += [f"--out={out}"]
        if verb == "train":
            words += [f"--run={out}", "--epochs=2", "--threads=1"]
        capsys.readouterr()
        try:
            with in_time():
                status = main(words)
            said = capsys.readouterr()
            assert status in (0, 2), status
            assert "Traceback" not in said.err
            if status == 2:
                (line,) = [line for line in said.err.splitlines() if line.startswith("distgnn: ")]
                check_sentence(line.removeprefix("distgnn: "))
                assert said.out == ""
            elif "--json" in words:
                json.loads(said.out)
        except BaseException as error:
            add_note(error, f"DISTGNN_FUZZ_SEED={seed}: distgnn {' '.join(words)[:600]!r}")
            raise
        finally:
            torch.set_num_threads(threads)


MODEL_FLAGS = (
    ["--model=gcn"],
    ["--model=sage", "--aggregator=max"],
    ["--model=gat", "--heads=2"],
    ["--model=gin"],
    ["--model=appnp"],
    ["--norm=layer"],
    ["--residual"],
    ["--layers=3"],
    ["--feature-norm=row"],
    ["--label-smoothing=0.1"],
    ["--optimizer=sgd"],
    ["--halo=exact"],
    ["--verify=rows"],
)


@pytest.mark.mpi
def test_two_ranks_that_are_processes_learn_what_one_learns(places: list[str]) -> None:
    graph = places[0]
    for seed, draw in draws("two ranks", 2):
        flags = sorted({word for words in draw.sample(MODEL_FLAGS, k=3) for word in words})
        flags += ["--epochs=3", "--threads=1", "--hidden=4", "--dropout=0"]
        found = []
        for place, more in ((graph, []), ("parts", ["--restarts=1"])):
            run = f"{place}-{seed}".replace("/", "-")
            command = [sys.executable, "-m", "distgnn", "train", place, f"--run={run}"]
            done = subprocess.run(
                [*command, *flags, *more],
                env={**ENVIRON, "PATH": os.environ["PATH"]},
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert "Traceback" not in done.stderr, f"DISTGNN_FUZZ_SEED={seed}: {flags}"
            lines = (
                Path(run, "metrics.jsonl").read_text().splitlines() if not done.returncode else []
            )
            found.append((done.returncode, [json.loads(line)["loss"] for line in lines]))
        assert found[0][0] == found[1][0], f"DISTGNN_FUZZ_SEED={seed}: {flags}"
        assert found[1][1] == pytest.approx(found[0][1], rel=1e-4), f"DISTGNN_FUZZ_SEED={seed}"
