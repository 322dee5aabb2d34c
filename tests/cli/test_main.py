from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rank_jobs import HANG_S

from distgnn import __version__
from distgnn.api.job import hint_of_kernel
from distgnn.cli import VERBS, main, restarts
from distgnn.cli.train_verb import TRAINING
from distgnn.comm.collective import as_input_error
from distgnn.comm.errors import PeerError
from distgnn.datasets import InputError
from distgnn.settings.fields import settings_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.loop import MachineSettings

PROGRAM = str(Path(sys.executable).with_name("distgnn"))


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"distgnn {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: distgnn {verb} ")
    assert "--json" in printed


def test_help_of_train_begins_with_three_commands_and_is_short(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 85
    assert [line.split()[0] for line in lines[4:7]] == ["distgnn", "distgnn", "mpirun"]
    assert "length of the run:" in lines
    assert "exact savings:" not in lines, "a group without a common option"
    assert re.fullmatch(r"\d\d more options: distgnn train --help-all", lines[-4])
    assert not any("--residual-map" in line for line in lines)


def test_all_options_of_train_are_shown_when_asked_for(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help-all"])
    printed = capsys.readouterr().out
    owners = (ModelSettings, *TRAINING, MachineSettings)
    flags = [setting.flag for owner in owners for setting in settings_of(owner) if setting.about]
    assert len(flags) > 60
    assert [flag for flag in flags if f"  {flag}" not in printed] == []
    assert "more options" not in printed
    titles = [f"\n{owner.GROUP}:\n" for owner in owners]
    places = [printed.index(title) for title in titles]
    assert places == sorted(places)


def test_help_lists_all_verbs_and_imports_no_torch():
    script = (
        "import sys; from distgnn.cli import build_parser; print(build_parser().format_help()); "
        "sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(f"\n    {verb}" in done.stdout for verb in VERBS)


def test_the_start_of_training_loads_neither_the_other_verbs_nor_the_readers_of_graphs():
    # Every rank would wait for both.
    script = (
        "import atexit, sys; from distgnn.cli import main; print(*sys.modules); "
        "atexit.register(lambda: print(*sys.modules)); main(['train', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    first, *_, last = done.stdout.splitlines()
    assert not {"scipy", "distgnn.datasets.sources", "distgnn.datasets.graph"} & {*first.split()}
    of_verbs = {word for word in last.split() if re.fullmatch(r"distgnn\.cli\.\w+_verb", word)}
    assert of_verbs == {"distgnn.cli.train_verb", "distgnn.cli.evaluate_verb"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: VERB; see distgnn --help"),
        (["fly"], r"argument VERB: invalid choice: 'fly' \(choose from .*; see distgnn --help"),
        (["train", "cora"], "required: --run; see distgnn train --help"),
        (["partition", "cora", "--out", "p"], "required: --parts; see distgnn partition --help"),
        (["datasets", "--fly"], "unrecognized arguments: --fly; see distgnn datasets --help"),
        (
            ["train", "cora", "--run", "r", "--hiden", "8"],
            r"--hiden 8; did you mean --hidden\? see distgnn train --help-all$",
        ),
        (
            ["datasets", "--hidden=8"],
            "unrecognized arguments: --hidden=8; see distgnn datasets --help$",
        ),
        (
            ["bench", "codecs", "--round", "8"],
            r"--round 8; did you mean --rounds\? see distgnn bench --help$",
        ),
        (["train", "cora", "more"], "unrecognized arguments: more; see distgnn train --help-all"),
        (["datasets", "--js"], "unrecognized arguments: --js"),
        (["train", "cora", "--run", "r", "--epochs"], "--epochs: expected one argument"),
        (["inspect", ""], "DIR must be a path, got ''"),
        (["inspect", "p", "--layers", "16,x"], "--layers must be widths such as 16,7, got '16,x'"),
        (["inspect", "p", "--layers", ""], "--layers must be a whole number from 1 to .*, got ''"),
        (["datasets", "corra"], r"no dataset, file or folder 'corra' \(did you mean cora\?\)"),
    ],
)
def test_a_command_that_cannot_be_understood_is_one_sentence(words, sentence, distgnn, here):
    outcome = distgnn(*words)
    with pytest.raises(InputError, match=sentence):
        raise InputError(outcome.sentence)
    assert list(here.iterdir()) == []


@pytest.fixture
def commands(ring, ring_parts, ring_run):
    """A sound command for every verb."""
    return {
        "partition": ["partition", ring, "--parts", 2, "--out", "parts"],
        "repartition": ["repartition", ring_parts, "--parts", 2, "--out", "parts"],
        "inspect": ["inspect", ring_parts],
        "train": ["train", ring, "--run", "run", "--epochs", 2],
        "tune": [
            *("tune", ring, "--run", "study", "--search", "lr=log(1e-3,1e-1)"),
            *("--trials", 2, "--epochs", 2),
        ],
        "evaluate": ["evaluate", ring_run],
        "predict": ["predict", ring_run, "--out", "predictions.csv"],
        "embed": ["embed", ring_run, "--out", "rows.npy"],
        "export": ["export", ring_run, "--to", "torch", "--out", "weights.pt"],
        "report": ["report", ring_parts, "--out", "page.html"],
        "plan": ["plan", ring_parts, "--bandwidth", "10Gb/s", "--threads", 1, "--hidden", 8],
        "datasets": ["datasets"],
        "doctor": ["doctor"],
        "bench": [
            *("bench", "epoch", "--shapes", "arxiv", "--scale", "1/500", "--layers", 1),
            *("--rounds", 1, "--peers", "", "--threads", 1),
        ],
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_exactly_one_json_object(verb, distgnn, commands):
    outcome = distgnn(*commands[verb], "--json")
    assert outcome.status == 0
    assert outcome.json


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_lines_for_people_without_json(verb, distgnn, commands):
    outcome = distgnn(*commands[verb])
    assert outcome.status == 0
    assert outcome.out.endswith("\n")
    assert not outcome.out.startswith("{")
    assert "None" not in outcome.out


def test_numbers_that_json_has_no_word_for_become_null(distgnn, monkeypatch):
    monkeypatch.setattr(
        "distgnn.cli.datasets_verb.describe", lambda name: {"x": [float("nan"), float("inf"), 1.5]}
    )
    assert distgnn("datasets", "--json").json["cora"] == {"x": [None, None, 1.5]}


def fails_with(error, monkeypatch):
    def run(arguments):
        raise error

    monkeypatch.setattr("distgnn.cli.datasets_verb.run", run)


def test_a_mistake_in_the_program_is_not_blamed_on_the_user(distgnn, monkeypatch):
    fails_with(KeyError("x"), monkeypatch)
    with pytest.raises(KeyError):
        distgnn("datasets")


def test_the_death_of_another_rank_asks_for_a_relaunch(distgnn, monkeypatch):
    fails_with(PeerError("rank 2 (host, pid 7) died"), monkeypatch)
    assert distgnn("datasets") == (75, "", "distgnn: rank 2 (host, pid 7) died\n")


def test_a_rank_that_died_may_have_been_ended_by_the_kernel():
    assert hint_of_kernel(0, "node1") == ""
    want = "for want of memory)"
    assert hint_of_kernel(1, "node1") == f" (meanwhile the kernel of node1 ended a process {want}"
    assert "node1 ended 2 processes for" in hint_of_kernel(2, "node1")


def test_an_interrupted_command_says_so(distgnn, monkeypatch):
    fails_with(KeyboardInterrupt(), monkeypatch)
    assert distgnn("datasets") == (130, "", "distgnn: interrupted\n")


def test_a_sentence_stays_on_one_line_whatever_a_path_holds(distgnn):
    assert distgnn("predict", "run", "--out", "a\nb").sentence.endswith("got 'a b'")


def test_the_system_s_refusals_are_sentences(distgnn, monkeypatch):
    fails_with(PermissionError(13, "Permission denied", "/secret"), monkeypatch)
    assert distgnn("datasets").sentence == "cannot use '/secret': Permission denied; check the path"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 7.28 TiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("NCCL error in: a.cpp\nLast error:\nCuda failure 2 'out of memory'"),
    ],
)
def test_too_little_memory_is_a_sentence(error, distgnn, monkeypatch):
    fails_with(error, monkeypatch)
    sentence = distgnn("datasets").sentence
    assert sentence.startswith(f"there is not enough memory on {socket.gethostname()} (")
    assert sentence.endswith("use more parts, a smaller model, or a machine with more memory")


def test_too_little_memory_of_a_device_is_a_sentence(distgnn, monkeypatch):
    told = "CUDA out of memory. Tried to allocate 2.00 GiB"
    more = ". GPU 0 has a total capacity of 79.10 GiB of which 1.90 GiB is free. Of the allocated"
    fails_with(torch.OutOfMemoryError(told + more), monkeypatch)
    assert f" ({told}); use more parts, " in distgnn("datasets").sentence


def test_the_little_memory_of_another_rank_is_not_that_of_this_one():
    sentence = "rank 1 (host1): there is not enough memory on host1 (std::bad_alloc)"
    assert as_input_error(RuntimeError(sentence)) is not None
    assert as_input_error(PeerError(sentence)) is None


def test_what_the_system_is_short_of_is_a_sentence(distgnn, monkeypatch):
    fails_with(OSError(errno.ENOSPC, "No space left on device"), monkeypatch)
    sentence = distgnn("datasets").sentence
    assert sentence.startswith(f"{socket.gethostname()} refused a file, process or thread (No sp")
    assert "free space or raise the limits of this user there" in sentence


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_results_that_a_full_disk_refuses_are_a_sentence():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distgnn", "datasets"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert re.fullmatch("distgnn: .* refused a file, .*\n", done.stderr)


@pytest.mark.parametrize("closed", ["", "1", "2", "0 1 2"])
def test_closed_streams_are_not_taken_by_files(closed, tmp_path):
    shut = " ".join(f"{number}>&-" for number in closed.split())
    words = f"{sys.executable} -m distgnn train cora --epochs 1 --hidden 4 --run {tmp_path}/run"
    done = subprocess.run(
        ["sh", "-c", f"exec {words} {shut}"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert ("results " in done.stdout) == ("1" not in closed)
    assert (tmp_path / "run/summary.json").exists()


def test_an_error_of_the_system_without_a_file_is_not_the_user_s():
    assert as_input_error(OSError(5, "Input/output error")) is None
    assert as_input_error(RuntimeError("shape mismatch")) is None


def test_a_rank_that_nobody_hears_says_itself_what_it_found(distgnn, monkeypatch):
    monkeypatch.setattr("distgnn.comm.early._TELL_S", 0.1)
    for name, value in {"RANK": 1, "SIZE": 2, "LOCAL_RANK": 1, "LOCAL_SIZE": 2}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    status, out, err = distgnn("datasets", "--fly")
    assert (status, out) == (2, "")
    assert err.startswith("distgnn: rank 1 (")
    assert err.endswith("): unrecognized arguments: --fly; see distgnn datasets --help\n")


def test_a_reader_that_goes_away_is_no_mistake():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(
            [PROGRAM, "datasets"], stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_training_without_a_traceback(tmp_path):
    command = [PROGRAM, "train", "synthetic:path", "--run", "run", "--epochs", "1000000"]
    command += ["--log-every", "10"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        while not job.stderr.readline().startswith("epoch "):
            assert job.poll() is None
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=HANG_S)
    assert job.returncode == 130
    assert err.splitlines()[-1] == "distgnn: interrupted"
    assert "Traceback" not in err
    assert out == ""
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["loss"] > 0


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "9"}, None)],
)
def test_waiting_threads_sleep_unless_the_user_chose(chosen, expected, distgnn, monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    assert distgnn("inspect", "nowhere").status == 2
    assert os.environ.get("OMP_WAIT_POLICY") == expected


@pytest.mark.parametrize(("chosen", "expected"), [(None, "1"), ("0", "0")])
def test_tensors_lie_in_huge_pages_unless_the_user_chose(chosen, expected, distgnn, monkeypatch):
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", chosen)
    assert distgnn("inspect", "nowhere").status == 2
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == expected


@pytest.mark.parametrize(("chosen", "expected"), [(None, "ERROR"), ("INFO", "INFO")])
def test_transports_log_errors_only_unless_the_user_chose(chosen, expected, distgnn, monkeypatch):
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    if chosen is not None:
        monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", chosen)
    assert distgnn("inspect", "nowhere").status == 2
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == expected


class _Swallower:
    """Is interrupted while Python frees it, where an exception is dropped."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_is_raised_again(distgnn, monkeypatch):
    def run(arguments):
        swallower = _Swallower()
        del swallower
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s:
            sum(range(1000))
        return 0

    monkeypatch.setattr("distgnn.cli.datasets_verb.run", run)
    before = signal.getsignal(signal.SIGINT)
    assert distgnn("datasets").status == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_a_log_that_cannot_be_written_ends_no_work(distgnn, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    done = distgnn("partition", "cora", "--parts", "2", "--out", "p", "--json")
    assert (done.status, done.json["num_parts"]) == (0, 2)


def test_an_interrupt_that_is_ignored_stays_so(distgnn, monkeypatch):
    seen = []

    def run(arguments):
        seen.append(signal.getsignal(signal.SIGINT))
        return 0

    monkeypatch.setattr("distgnn.cli.datasets_verb.run", run)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert distgnn("datasets").status == 0
        with restarts._forwarding():
            seen.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN] * 2


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "p"),
        ("export", "r", "--to", "torch", "--out", "f.pt"),
        ("report", "r", "--out", "f.html"),
        ("datasets",),
        ("plan", "p"),
        ("bench", "kernels"),
    ],
)
def test_verbs_of_one_process_refuse_several(distgnn, monkeypatch, words):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("distgnn.comm.early.begin", lambda: None)
    monkeypatch.setattr("distgnn.comm.early.tell", lambda sentence, say: say(sentence))
    assert distgnn(*words).sentence == (
        f"distgnn {words[0]} runs in one process, but 2 were started; run it without mpirun"
    )
