"""Interrupts and refused memory while the program still loads its modules."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from distgnn import __main__ as program
from distgnn import cli

# Does something as a module is about to be imported, whatever the load of the machine.
STRUCK = """
import os, resource, runpy, signal, sys
kind, name = sys.argv.pop(1), sys.argv.pop(1)

def strike(event, arguments):
    if event != "import" or arguments[0] != name or struck:
        return
    struck.append(name)
    if kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

struck = []
# A shell has its background jobs, and so this process, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(strike)
runpy.run_module("distgnn", run_name="__main__", alter_sys=True)
"""


def struck(kind, name, folder):
    words = ["train", "synthetic:planted,num_vertices=300", "--run", "run", "--epochs", "1"]
    return subprocess.run(
        [sys.executable, "-P", "-c", STRUCK, kind, name, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.parametrize("name", ["argparse", "distgnn.cli", "numpy", "torch"])
def test_an_interrupt_while_modules_are_loaded_ends_in_order(tmp_path, name):
    done = struck("interrupt", name, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "distgnn: interrupted\n")


@pytest.mark.parametrize(
    "name",
    [
        *("argparse", "distgnn.cli", "numpy", "torch"),
        pytest.param("torch.functional", marks=pytest.mark.slow),
    ],
)
def test_memory_that_is_refused_while_modules_are_loaded_is_named(tmp_path, name):
    done = struck("memory", name, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"distgnn: there is not enough memory (on|to load the) .*\n", done.stderr)


def test_a_bug_is_no_want_of_memory_where_memory_is_limited(monkeypatch):
    def fail():
        raise KeyError("a bug")

    monkeypatch.setattr("distgnn.cli.main", fail)
    monkeypatch.setattr(program, "_is_memory_refused", lambda: True)
    with pytest.raises(KeyError, match="a bug"):
        program.main()


def test_an_error_of_the_interpreter_is_want_of_memory_where_memory_is_limited(monkeypatch, capfd):
    def fail():
        raise SystemError("<built-in function compile> returned NULL without setting an exception")

    monkeypatch.setattr("distgnn.cli.main", fail)
    with pytest.raises(SystemError, match="returned NULL"):
        program.main()
    monkeypatch.setattr(program, "_is_memory_refused", lambda: True)
    assert program.main() == 2
    assert "there is not enough memory to load the program (SystemError)" in capfd.readouterr().err


def test_no_module_is_loaded_to_tell_that_memory_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "distgnn.training.loop.stop", None)
    sentence, status = cli._sentence_of(MemoryError("no room"))
    assert ("memory" in sentence, status) == (True, 2)


def test_modules_of_the_working_directory_are_not_those_of_python(tmp_path):
    for name in ("argparse", "dataclasses", "json", "mmap", "random", "signal", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the user')\n")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "distgnn", "--version"],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout.startswith("distgnn "), done.stdout + done.stderr


def test_the_program_starts_in_a_directory_that_was_removed(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    words = f"rmdir {gone} && exec {sys.executable} -m distgnn --version"
    done = subprocess.run(
        ["sh", "-c", words],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout.startswith("distgnn "), done.stderr
