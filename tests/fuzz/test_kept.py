"""Damaged partition directories and runs: the same result as before, or one sentence."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from fuzz.corpus import CORPUS
from fuzz.mutate import mutated, mutated_array, mutated_json
from fuzz.oracle import add_note, check_sentence, draws, in_time

from distgnn.cli import main

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

EPOCHS = 6
MODEL = ("--hidden=4", "--algorithm=cd-2", "--checkpoint-every=1", "--quiet", "--json")
SAME = ("test_metric", "best_epoch", "final_loss")


def damage(folder: Path, draw: random.Random) -> tuple[str, str]:
    """Change, remove or swap a file; its name, and what was done."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    victim = draw.choice(files)
    name = str(victim.relative_to(folder))
    content = victim.read_bytes()
    kinds: list[Callable[[bytes, random.Random], bytes]] = [mutated, mutated]
    if victim.suffix == ".npy":
        kinds.append(mutated_array)
    elif victim.suffix == ".json":
        kinds += [mutated_json] * 3
    kind = draw.randrange(len(kinds) + 2)
    if kind < len(kinds):
        victim.write_bytes(kinds[kind](content, draw))
        return name, kinds[kind].__name__
    victim.unlink()
    if kind == len(kinds):
        return name, "removed"
    other = draw.choice([file for file in files if file != victim])
    shutil.copy(other, victim)
    return name, f"replaced by {other.relative_to(folder)}"


class Program:
    """The command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> dict[str, Any] | None:
        """Return the JSON of a command that went well; None for one that said a sentence."""
        self._capsys.readouterr()
        threads = torch.get_num_threads()
        try:
            with in_time():
                status = main([str(word) for word in words])
        finally:
            torch.set_num_threads(threads)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        if status == 0:
            found: dict[str, Any] = json.loads(said.out)
            return found
        assert (status, said.out) == (2, "")
        (line,) = [line for line in said.err.splitlines() if line.startswith("distgnn: ")]
        check_sentence(line.removeprefix("distgnn: "))
        return None


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def results_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return the results that a damaged file may not change."""
    return {key: found[key] for key in SAME}


def test_a_damaged_partition_trains_as_before_or_says_why_not(
    program: Program, tmp_path: Path
) -> None:
    graph = CORPUS["npz"](tmp_path)
    words = (*MODEL, "--threads=1", f"--epochs={EPOCHS}")
    expected = {}
    for num_parts in (1, 2):
        parts = tmp_path / f"parts-{num_parts}"
        assert main(["partition", str(graph), f"--parts={num_parts}", f"--out={parts}"]) == 0
    trained = program("train", tmp_path / "parts-1", f"--run={tmp_path / 'sound'}", *words)
    assert trained is not None
    expected = results_of(trained)
    folder, run = tmp_path / "damaged", tmp_path / "run"
    for seed, draw in draws("partition", 150):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)
        num_parts = draw.choice((1, 1, 2))
        shutil.copytree(tmp_path / f"parts-{num_parts}", folder)
        name, done = damage(folder, draw)
        try:
            more = draw.choice([[], ["--verify"], ["--bound"], ["--widths=4"]])
            program("inspect", folder, "--json", *more)
            if draw.random() < 0.2:
                program("plan", folder, "--bandwidth=1Gb/s", "--json")
            if num_parts == 1:
                found = program("train", folder, f"--run={run}", *words)
                assert found is None or name == "manifest.json" or results_of(found) == expected
            else:
                out = tmp_path / "out"
                more = ("--overwrite", "--json")
                program("repartition", folder, "--parts=3", f"--out={out}", *more)
        except BaseException as error:
            add_note(error, f"DISTGNN_FUZZ_SEED={seed}: {done}: {name} of {num_parts} parts")
            raise


def test_a_damaged_run_goes_on_as_before_or_says_why_not(program: Program, tmp_path: Path) -> None:
    graph, halted, ended = CORPUS["npz"](tmp_path), tmp_path / "halted", tmp_path / "ended"
    words = (*MODEL, "--threads=1", "--resume")
    assert program("train", graph, f"--run={halted}", *words, f"--epochs={EPOCHS - 2}")
    shutil.copytree(halted, ended)
    trained = program("train", graph, f"--run={ended}", *words, f"--epochs={EPOCHS}")
    assert trained is not None
    expected, model = results_of(trained), (ended / "model.safetensors").read_bytes()
    folder = tmp_path / "damaged"
    for seed, draw in draws("run", 150):
        shutil.rmtree(folder, ignore_errors=True)
        is_halted = draw.random() < 0.6
        shutil.copytree(halted if is_halted else ended, folder)
        name, done = damage(folder, draw)
        try:
            if is_halted:
                found = program("train", graph, f"--run={folder}", *words, f"--epochs={EPOCHS}")
                if found is not None and name != "metrics.jsonl":
                    assert results_of(found) == expected
                    assert (folder / "model.safetensors").read_bytes() == model
                continue
            program("evaluate", folder, "--threads=1", "--json")
            out = tmp_path / "out"
            for verb in ("predict", "embed", "export", "report"):
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                program(verb, folder, f"--out={out / 'file'}", "--json")
        except BaseException as error:
            add_note(error, f"DISTGNN_FUZZ_SEED={seed}: {done}: {name}, halted: {is_halted}")
            raise
