"""Words of the command line that say how ranks are started, and started again."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

from distgnn.cli import restarts
from distgnn.cli.restarts import _hosts_of, _Job, _without_flags
from distgnn.comm import watchdog
from distgnn.comm.launch import SINGLE, detect, without_launcher
from distgnn.datasets.errors import InputError


def test_ranks_have_all_words_but_those_about_ranks():
    words = ["train", "parts", "--restarts", "3", "--run=r", "--hosts=a,b", "--mpirun", "mpirun -q"]
    assert _without_flags(words) == ["train", "parts", "--run=r"]


def test_hosts_have_a_rank_each_or_as_many_as_they_say():
    assert _hosts_of(None) == {}
    assert _hosts_of("a:2,b,10.0.0.1") == {"a": 2, "b": 1, "10.0.0.1": 1}


@pytest.mark.parametrize("text", ["", "a,,b", "a:0", "a,a:2", "a b", "-x"])
def test_other_texts_of_hosts_are_refused(text):
    with pytest.raises(InputError, match="--hosts must be different names between commas"):
        _hosts_of(text)


def test_ranks_that_were_started_already_are_refused(distgnn, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("distgnn.comm.early.begin", lambda: None)
    monkeypatch.setattr("distgnn.comm.early.tell", lambda sentence, say: say(sentence))
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1")
    assert done.sentence.startswith("--restarts starts the ranks itself, but 2 were started")


def test_a_run_cannot_be_replaced_each_time(distgnn):
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--overwrite")
    assert done.sentence == (
        "--restarts continues what it began, but --overwrite would begin again each time; remove "
        "'run' and leave --overwrite out"
    )


@pytest.mark.parametrize("flag", ["--mpirun", "--hosts"])
def test_how_ranks_start_needs_restarts(distgnn, flag):
    done = distgnn("train", "cora", "--run", "run", flag, "a")
    assert done.sentence.startswith(f"{flag} says how --restarts starts ranks, which is not given")


def test_a_command_with_an_open_quotation_mark_is_refused(distgnn):
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--mpirun", "mpirun 'x")
    assert done.sentence == (
        '--mpirun must be a command as a shell takes it, got "mpirun \'x" (No closing quotation); '
        "close its quotation marks"
    )


def test_hosts_need_mpirun(distgnn, monkeypatch):
    monkeypatch.setattr(restarts, "find_mpirun", lambda: None)
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--hosts", "a,b")
    assert done.sentence.startswith("--hosts needs mpirun, which is not installed")


@pytest.mark.parametrize(("name", "resumes"), [("config.json", False), (".lock", True)])
def test_a_run_that_was_there_before_is_not_continued_after_a_loss(
    distgnn, monkeypatch, tmp_path, name, resumes
):
    begun = []

    def lose(job, asked):
        begun.append("--resume" in job._command)
        job._codes = [-9]

    monkeypatch.setattr(_Job, "run", lose)
    run = tmp_path / "earlier"
    run.mkdir()
    (run / name).write_text("{}")
    assert distgnn("train", "cora", "--run", run, "--restarts", "1").status == 75
    assert begun == [False, resumes]


def test_parts_are_merged_only_where_there_are_fewer_ranks(
    distgnn, monkeypatch, ring_parts, tmp_path
):
    begun = []

    def lose(job, asked):
        begun.append((job._num_ranks, "--merge-parts" in job._command))
        job._codes = [1]

    monkeypatch.setattr(_Job, "run", lose)
    monkeypatch.setattr(_Job, "answering", lambda job: {"a": 2})
    words = ["train", ring_parts, "--run", "run", "--restarts", "1", "--mpirun", "mpirun"]
    assert distgnn(*words, "--hosts", "a:2,b").status == 75
    assert begun == [(3, False), (2, True)]
    begun.clear()
    words = [*words, "--preset", "grappa", "--cuts", ring_parts]
    done = distgnn(*words, "--hosts", "a:2,b")
    assert done.status == 2
    sentence = "--hosts gives 2 of the 3 ranks that the parts need, and those of --cuts are not me"
    assert sentence in done.err.splitlines()[-1]
    assert begun == [(3, False)]


def stub(folder, *lines):
    """An mpirun of a few lines of shell; the second job ends well."""
    program = folder / "mpirun"
    again = 'test -e begun && echo "results  run" && exit 0'
    program.write_text("\n".join(["#!/bin/sh", f"cd {folder}", *lines, again, "touch begun"]))
    program.chmod(0o755)
    return program


def test_an_mpirun_that_ends_well_before_its_ranks_is_started_again(distgnn, tmp_path):
    """Open MPI's does so where a host is gone with its daemon."""
    words = ["train", "cora", "--run", "run", "--restarts", "1", "--mpirun", stub(tmp_path)]
    done = distgnn(*words)
    assert (done.status, done.out) == (0, "results  run\n")
    assert "mpirun ended with status 0, but rank 0 did not come to its end" in done.err


@pytest.mark.parametrize(
    "says",
    [
        "echo '[1,0]<stdout>:results  run'",  # mpirun --tag-output
        "echo '[job@1,0]<stdout>: {\"metric\": 1}'",
        "echo 'Wed Nov 25 12:00:00 2026<stdout>:results  run'",  # mpirun --timestamp-output
        "echo '[0] results  run'",  # mpiexec -prepend-rank
        "echo ' 0: results  run'",  # srun -l
        "mkdir -p run && echo {} > run/summary.json",  # what is printed goes to a file
        "mkdir -p run && echo {} > run/series.json",
    ],
)
def test_a_run_that_ended_is_not_started_again_whatever_the_launcher_prints(distgnn, here, says):
    program = here / "mpirun"
    program.write_text(f"#!/bin/sh\necho started >> starts\n{says}\n")
    program.chmod(0o755)
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--mpirun", program)
    assert (done.status, (here / "starts").read_text()) == (0, "started\n")


def test_results_from_before_are_no_sign_of_an_end(distgnn, here):
    (here / "run").mkdir()
    (here / "run/summary.json").write_text("{}")
    program = stub(here)
    words = ["--resume", "--restarts", "1", "--mpirun", program]
    assert distgnn("train", "cora", "--run", "run", *words).status == 0
    assert (here / "begun").exists()


def test_a_strategy_is_printed_without_ranks(distgnn, ring, here):
    words = ["--print-strategy", "--run", "run", "--restarts", "1", "--mpirun", "no-such-launcher"]
    done = distgnn("train", ring, *words)
    assert (done.status, done.out[:6]) == (0, "--halo")


@pytest.mark.parametrize("label", ["", "[1,0]<stderr>:", "[0] ", "0: "])
def test_a_rank_that_failed_is_heard_through_a_label(label):
    job = _Job([], 1, ["mpirun"], {})
    job._relay(SimpleNamespace(stderr=io.BytesIO(f"{label}distgnn: lost\n".encode())))
    assert job._has_spoken.is_set()


def test_a_rank_with_bad_input_may_end_before_mpirun_counts_as_hung():
    """It says so at once, and ends once the others have, whose main threads may be busy."""
    heartbeat_s = 1.0
    assert watchdog.GRACE_S + 2 * heartbeat_s < restarts._GRACE_S


def test_lost_hosts_are_looked_for_while_mpirun_waits_for_them(distgnn, tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, "_GRACE_S", 100.0)
    monkeypatch.setattr(restarts, "_HANG_S", 0.1)
    monkeypatch.setattr(restarts, "_ANSWER_S", 100.0)
    asked = tmp_path / "asked"

    def end_soon():
        """Have mpirun killed once all hosts were looked for."""
        while not asked.exists() or len(asked.read_text().split()) < 2:
            time.sleep(0.01)
        monkeypatch.setattr(restarts, "_GRACE_S", 0.1)

    threading.Thread(target=end_soon, daemon=True).start()
    asks = (
        'case "$*" in *true) kill -0 $(cat job) && echo "$4" >> asked; test "$4" = a; exit;; esac'
    )
    program = stub(tmp_path, asks)
    hangs = "\necho $$ > job; echo 'distgnn: rank 1 is lost' >&2; exec sleep 600\n"
    program.write_text(program.read_text() + hangs)
    words = ["train", "cora", "--run", "run", "--restarts", "1", "--mpirun", program]
    done = distgnn(*words, "--hosts", "a,b")
    assert (done.status, done.out) == (0, "results  run\n")
    assert "without b, on which nothing could be started" in done.err
    assert sorted(asked.read_text().split()) == ["a", "b"]


def test_hosts_have_time_to_answer_once_the_lost_job_has_given_them_free(tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() - 2 * restarts._ANSWER_S)
    monkeypatch.setattr(restarts, "_ANSWER_S", 100.0)
    monkeypatch.setattr(restarts, "time", clock)
    free = tmp_path / "free"
    waits = ["sh", "-c", f"until test -e {free}; do sleep 0.05; done"]
    probe = restarts._Probe(waits, {"a": 2})
    clock.monotonic = time.monotonic
    threading.Timer(0.1, free.touch).start()
    assert probe.answering() == {"a": 2}


def test_ranks_that_are_killed_here_are_not_blamed(monkeypatch):
    """Rank 1 ends with a traceback, which comes again, and rank 0 does not end in time."""
    monkeypatch.setattr(restarts, "_GRACE_S", 0.1)
    job = _Job([], 2, [], {})
    commands = (["sleep", "600"], ["sh", "-c", "exit 1"])
    started = [subprocess.Popen(words, start_new_session=True) for words in commands]
    job._wait(started, restarts._Asked(0, []))
    assert started[0].returncode == -9
    assert job._status(0) == 1
    assert job.what_failed() == "rank 1 ended with status 1"


def test_the_last_words_of_ranks_are_waited_for_while_they_are_there(monkeypatch, capfd):
    monkeypatch.setattr(restarts, "_WORDS_S", 0.05)
    looks, relay = [], _Job._relay
    look = restarts.select.select

    def count(*words):
        looks.append(1)
        return look(*words)

    def late(job, process):
        while len(looks) < 3:  # it is not scheduled for longer than an empty pipe is waited for
            time.sleep(0.01)
        relay(job, process)

    monkeypatch.setattr(restarts.select, "select", count)
    monkeypatch.setattr(_Job, "_relay", late)
    job = _Job([], 1, ["sh", "-c", "echo 'distgnn: rank 1 died' >&2; exit 75"], {})
    with tempfile.TemporaryFile() as printed:
        started = []
        job._start(printed, started)
        job._wait(started, restarts._Asked(0, []))
    assert capfd.readouterr().err == "distgnn: rank 1 died\n"


def refusing_the_last(monkeypatch, limit):
    """Have the system refuse a process once so many have begun; those."""
    begun, popen = [], subprocess.Popen

    def start(*words, **more):
        if len(begun) == limit:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        begun.append(popen(*words, **more))
        return begun[-1]

    monkeypatch.setattr(restarts.subprocess, "Popen", start)
    return begun


def test_ranks_that_have_begun_end_where_another_one_cannot(monkeypatch):
    begun = refusing_the_last(monkeypatch, 2)
    with pytest.raises(BlockingIOError):
        _Job(["sleep", "100"], 3, [], {}).run(restarts._Asked(0, []))
    assert [process.poll() for process in begun] == [-9, -9]


def test_looks_at_hosts_that_have_begun_end_where_another_one_cannot(monkeypatch):
    begun = refusing_the_last(monkeypatch, 1)
    with pytest.raises(BlockingIOError):
        restarts._Probe(["sleep", "100"], {"a": 1, "b": 1})
    assert begun[0].poll() is not None


def test_a_log_that_is_full_ends_no_job(monkeypatch):
    def write(text):
        raise OSError(28, "No space left on device")

    job = _Job([], 1, ["mpirun"], {})
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=write, flush=lambda: None))
    said = io.BytesIO(b"epoch 1\ndistgnn: lost\n")
    job._relay(SimpleNamespace(stderr=said))
    assert job._has_spoken.is_set()


def test_a_process_of_a_rank_can_be_no_rank():
    ranked = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    other = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "SLURM_PROCID": "1", "PMI_RANK": "1"}
    left = without_launcher({**ranked, **other, "HOME": "/", "OMPI_ALLOW_RUN_AS_ROOT": "1"})
    assert left == {"HOME": "/", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    assert detect(left) == SINGLE


def test_a_rank_that_stands_still_once_all_is_done_is_not_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(restarts, "_LEAVING_S", 0.2)
    words = "import os, time; time.sleep(0 if os.environ['RANK'] == '0' else 600)"
    job = _Job([sys.executable, "-c", words], 2, [], {})
    assert job.run(restarts._Asked(0, [])) == 0
    assert "rank 1 did not end after rank 0, and is ended" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "  "])
def test_a_command_without_words_is_refused(distgnn, text):
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--mpirun", text)
    assert done.sentence == (
        f"--mpirun must be a command such as 'srun -n 4', got {text!r}; name one, or leave "
        "--mpirun out"
    )


def test_what_ranks_print_needs_no_encoding_of_the_output(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    sys.stdout.write("before\n")
    restarts._print("caf\u00e9\n".encode())
    assert raw.getvalue().decode() == "before\ncaf\u00e9\n"
    monkeypatch.setattr("sys.stdout", io.StringIO())
    restarts._print("caf\u00e9\n".encode())
    assert sys.stdout.getvalue() == "caf\u00e9\n"
