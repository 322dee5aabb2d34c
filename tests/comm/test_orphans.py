"""A rank whose launcher died before the kernel could watch it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

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


def test_a_rank_of_no_launcher_goes_on():
    assert ended().stdout == "goes on\n"
