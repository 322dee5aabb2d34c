"""A rank whose launcher died before the kernel could watch it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys

import pytest

from distgnn.comm import process
from distgnn.comm.process import end_orphan, this_process

CODE = """
import os
from distgnn.comm.process import end_orphan
end_orphan(os.environ)
print("goes on")
"""


def ended(**variables):
    command = [sys.executable, "-c", CODE]
    found = [int(variables["PMI_FD"])] if "PMI_FD" in variables else []
    return subprocess.run(
        command,
        env={**os.environ, **variables},
        pass_fds=found,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("name", ["PMIX_SERVER_URI41", "PMIX_SERVER_URI2"])
def test_a_rank_of_open_mpi_ends_if_its_launcher_has(name):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        uri = f"prterun-host-7@0.0;tcp4://127.0.0.1:{server.getsockname()[1]}"
        # Nobody else can have the port, which refuses all until somebody listens.
        done = ended(**{name: uri})
        server.listen()
        assert ended(**{name: uri}).stdout == "goes on\n"
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "distgnn: the launcher has ended; start the job again\n"


def test_a_rank_of_hydra_ends_if_its_proxy_has():
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            assert ended(PMI_FD=str(ours.fileno())).stdout == "goes on\n"
        assert ended(PMI_FD=str(ours.fileno())).returncode == 75


def test_a_rank_of_restarts_ends_if_what_started_it_has():
    me = this_process()
    assert ended(DISTGNN_SUPERVISED=f"{me.pid}:{me.start}").stdout == "goes on\n"
    assert ended(DISTGNN_SUPERVISED=f"{me.pid}:{me.start + 1}").returncode == 75


def test_a_rank_of_torchrun_ends_if_init_has_taken_it(monkeypatch, capfd):
    environ = {"TORCHELASTIC_RUN_ID": "x"}
    statuses = []
    monkeypatch.setattr(process.os, "_exit", statuses.append)
    for name, status in (("pt_elastic", []), ("bash", []), ("systemd", [75]), ("tini", [75])):
        statuses.clear()
        monkeypatch.setattr(process, "_name", lambda pid, name=name: name)
        end_orphan(environ)
        assert statuses == status
    assert "the launcher has ended" in capfd.readouterr().err


def test_a_rank_of_no_launcher_goes_on():
    assert ended().stdout == "goes on\n"


LAUNCHER = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(15, b"mpirun", 0, 0, 0)  # its name
rank = "import os, time; from distgnn.comm.process import die_with_parent; die_with_parent(); "
rank += "print(os.getpid(), flush=True); time.sleep(100)"
subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, rank])
"""


def test_a_rank_in_a_wrapper_ends_with_its_launcher():
    command = [sys.executable, "-c", LAUNCHER]
    launcher = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    rank = process.process_id(int(launcher.stdout.readline()))
    assert process.is_alive(rank)
    launcher.kill()
    launcher.wait()
    # What the wrapper says is over with it.
    assert launcher.stderr.read() == "distgnn: the launcher has ended; start the job again\n"
    assert not process.is_alive(rank)
    launcher.stdout.close()
    launcher.stderr.close()


def test_no_more_files_are_allowed_than_the_system_lets(monkeypatch):
    allowed = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: allowed.append(limits))
    for num_ranks in (2, 200, 2000):
        process.allow_files(8 * num_ranks)
    assert allowed == [(1856, 4096), (4096, 4096)]
