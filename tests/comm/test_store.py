"""The store of a job: its verbs, and who may use it."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from rank_jobs import ENVIRON, HANG_S, free_port

from distgnn.comm import rendezvous
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import Launch
from distgnn.comm.rendezvous import meet
from distgnn.comm.secret import secret_of_job
from distgnn.comm.store import SecretError, connect_store, leave_store, serve_store
from distgnn.comm.store_server import pack
from distgnn.datasets import InputError


@pytest.fixture
def served():
    store = serve_store(socket.create_server(("127.0.0.1", 0)), "127.0.0.1", 5, b"secret")
    yield store
    store.close()


def port_of(served):
    return served.server._listener.getsockname()[1]


def test_a_store_gives_back_what_was_written(served):
    other = connect_store("127.0.0.1", port_of(served), 5, b"secret")
    served.set("bytes", bytes(range(256)))
    assert other.get("bytes") == bytes(range(256))
    assert (other.add("n", 2), served.add("n", 0), other.get("n")) == (2, 2, b"2")
    assert other.compare_set("c", "", "first") == other.compare_set("c", "", "second") == b"first"
    assert other.compare_set("c", "first", "third") == b"third"
    assert other.compare_set("none", "expected", "x") == b"expected"
    assert other.check(["n", "c"])
    assert not other.check(["n", "none"])
    assert other.present(["n", "none", "c"]) == [True, False, True]
    assert other.delete_key("n")
    assert not other.delete_key("n")
    large = "x" * 3_000_000
    other.set("large", large)
    assert served.multi_get(["large", "c"]) == [large.encode(), b"third"]


def test_texts_of_any_language_come_back(served):
    # An error that names a path may hold any of these, and a lone surrogate where it is no UTF-8.
    text = "ü in /home/jürgen, 用户 and \u2019"
    served.set("k", text)
    assert served.get("k").decode() == text
    assert served.compare_set("k", text, "用") == "用".encode()
    served.set("odd", "\udcff")
    assert served.get("odd") == b"\\udcff"
    other = connect_store("127.0.0.1", port_of(served), 5, b"secret")
    other.leave_will({"left": text})
    other.close()
    assert served.get("left").decode() == text


def test_strangers_that_go_away_at_once_end_nobody(served):
    for _ in range(500):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port_of(served))) as gone:
            # The connection is reset, before or after the server greets it.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other = connect_store("127.0.0.1", port_of(served), 5, b"secret")
    other.set("still", "here")
    assert served.get("still") == b"here"


def test_a_value_is_waited_for(served):
    patient = connect_store("127.0.0.1", port_of(served), 60, b"secret")
    threading.Timer(0.05, lambda: served.set("late", "came")).start()
    assert patient.get("late") == b"came"
    other = connect_store("127.0.0.1", port_of(served), 60, b"secret")
    other._timeout_s = 0.2
    with pytest.raises(RuntimeError, match=r"the store has no never after 0\.2 s"):
        other.get("never")


def test_who_does_not_know_the_secret_cannot_write(served):
    with pytest.raises(SecretError, match="took no proof"):
        connect_store("127.0.0.1", port_of(served), 5, b"another")
    request = pack(["set", "failure", '"a sentence of my own"'])
    for words in (request, b"\0" * 64 + request, os.urandom(200)):
        with socket.create_connection(("127.0.0.1", port_of(served)), timeout=5) as stranger:
            stranger.recv(32)
            stranger.sendall(words)
            stranger.settimeout(0.5)
            with suppress(ConnectionResetError, TimeoutError):
                assert stranger.recv(100) == b""
    assert not served.check(["failure"])


def test_a_rank_notices_that_somebody_else_listens():
    """Who answers without the secret, though it takes every proof."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes(32))
                connection.recv(64)
                connection.sendall(bytes(32))

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(SecretError, match="does not know the secret of this job"):
            connect_store("127.0.0.1", listener.getsockname()[1], 5, b"secret")


def test_a_rank_0_that_is_busy_is_no_other_job(monkeypatch):
    """Its server cannot answer while another of its threads holds the interpreter."""
    monkeypatch.setattr("distgnn.comm.rendezvous._AGAIN_S", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        sentence = r"^rank 0 did not answer before .* \(what listens at .* no proof for 0\.1 s\)"
        with pytest.raises(PeerError, match=sentence):
            rendezvous._connect("127.0.0.1", port, b"secret", 0.1)


def given(rank, size=2, local_size=1, **more):
    environ = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "DISTGNN_SECRET": "one"}
    environ |= more
    return Launch("torchrun", rank, size, rank % local_size, local_size), environ


def test_a_rank_of_another_user_or_job_is_refused_with_the_reason():
    launch, environ = given(0)
    first = meet(launch, environ, interface="lo", timeout_s=5)
    second = Launch("torchrun", 1, 2, 0, 1)
    for other in ({"DISTGNN_SECRET": "two"}, {"TORCHELASTIC_RUN_ID": "8"}):
        with pytest.raises(InputError, match=r"another job's or another user's, .*DISTGNN_SECRET"):
            meet(second, {**environ, **other}, interface="lo", timeout_s=5)
    # Of an outer launcher, and only on some hosts: a secret of the user's is one for all.
    meet(second, {**environ, "SLURM_JOB_ID": "9"}, interface="lo", timeout_s=5)
    first.store.close()


def test_a_rank_0_that_is_killed_while_a_rank_connects_is_no_other_job():
    launch, environ = given(1)
    with socket.create_server(("127.0.0.1", int(environ["MASTER_PORT"]))) as listener:

        def die():
            listener.accept()[0].close()  # the look whether anybody listens
            connection, _ = listener.accept()
            listener.close()
            connection.close()

        dies = threading.Thread(target=die)
        dies.start()
        with pytest.raises(PeerError, match="rank 0 ended before the ranks had met"):
            meet(launch, environ, interface="lo", timeout_s=5)
        dies.join()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's table")
def test_ranks_of_one_host_listen_on_loopback_with_torchruns_variables_too():
    launch, environ = given(0, local_size=2, MASTER_ADDR=socket.gethostname())
    meeting = meet(launch, environ, interface=None, timeout_s=5)
    listening = meeting.store.server._listener.getsockname()[0]
    assert listening == "127.0.0.1"
    second = meet(Launch("torchrun", 1, 2, 1, 2), environ, interface=None, timeout_s=5)
    assert second.address == "127.0.0.1"
    meeting.store.close()


def test_a_user_without_a_home_is_asked_for_a_secret(monkeypatch):
    def has_none(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", has_none)
    with pytest.raises(InputError, match=r"but this user has none; set DISTGNN_SECRET to one"):
        secret_of_job({}, "torchrun")


def test_the_secret_is_a_file_of_the_user_alone(tmp_path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    secret = secret_of_job(environ, "torchrun")
    file = tmp_path / "distgnn" / "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret_of_job(environ, "torchrun") == secret
    assert secret_of_job({**environ, "SLURM_JOB_ID": "1"}, "torchrun") != secret
    assert [path.name for path in file.parent.iterdir()] == ["secret"]
    file.chmod(0o644)
    with pytest.raises(InputError, match="must be a secret of this user alone, but others can"):
        secret_of_job(environ, "torchrun")
    assert secret_of_job({**environ, "DISTGNN_SECRET": "x"}, "torchrun") != secret
    (tmp_path / "taken").write_text("")
    sentence = re.escape(f"'{tmp_path}/taken/distgnn/secret' cannot be used (Not a directory)")
    with pytest.raises(InputError, match=rf"several hosts need a secret, but {sentence}; set DIST"):
        secret_of_job({"XDG_CONFIG_HOME": str(Path(tmp_path) / "taken")}, "torchrun")


@pytest.mark.parametrize(
    ("kind", "name", "counts"),
    [
        ("srun", "SLURM_JOB_ID", True),
        ("srun", "SLURM_STEP_ID", True),
        ("torchrun", "TORCHELASTIC_RUN_ID", True),
        ("torchrun", "SLURM_JOB_ID", False),
        ("openmpi", "SLURM_STEP_ID", False),
    ],
)
def test_with_a_secret_of_the_users_own_names_of_the_launcher_itself_count(kind, name, counts):
    environ = {"DISTGNN_SECRET": "x"}
    named = secret_of_job({**environ, name: "1"}, kind)
    assert (named != secret_of_job(environ, kind)) == counts


@pytest.mark.parametrize("verb", ["add", "get"])
def test_a_store_that_answers_something_else_is_lost(served, monkeypatch, verb):
    monkeypatch.setattr(served, "_ask", lambda *request: {"to": request})
    with pytest.raises(RuntimeError, match=r"the store at .* is lost: it answers \"{'to': "):
        served.add("n", 1) if verb == "add" else served.get("n")


def test_a_silent_connection_is_kept_alive(served):
    other = connect_store("127.0.0.1", port_of(served), 5, b"secret")
    connection = other._connection
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_who_has_left_a_will_is_missed_within_seconds_when_its_host_vanishes(served):
    other = connect_store("127.0.0.1", port_of(served), 5, b"secret")
    (name,) = (
        number
        for number, guest in served.server._guests.items()
        if guest.connection.getpeername() == other._connection.getsockname()
    )
    connection = served.server._guests[name].connection

    def looked_after():
        asks = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return asks, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    def looks_after():
        idle_s = other._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        return idle_s, other._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    other.leave_will({"left": "1"}, 9)
    assert looked_after() == (1, 9000)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
    # The host of rank 0 may vanish, too.
    assert looks_after() == (3, 9000)
    # That of a whole job: a link may fail for longer, and the watchdog judges.
    other.leave_will({"left": "1"})
    assert looked_after() == (0, 0)
    other.leave_will({"left": "1"}, 9)
    other.take_will_back()
    assert looked_after() == (0, 0)
    assert looks_after() == (60, 0)


def test_a_rank_0_that_was_stopped_as_it_ended_is_not_waited_for_long(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = serve_store(listener, "127.0.0.1", 600, b"secret")
        other = connect_store("127.0.0.1", port_of(served), 600, b"secret")
        monkeypatch.setattr("distgnn.comm.store._LAST_WAIT_S", 0.2)
        # It answers nobody any more.
        monkeypatch.setattr(served.server, "_read", lambda guest: None)
        leave_store(other, 1, 2)


TWICE = """
import time
from distgnn.comm.open import open_group
from distgnn.datasets import InputError
try:
    open_group(backend="mpi", identity={"verb": "train"})
except InputError as error:
    print("backend 'mpi' cannot be used" in str(error))
for verb in ("train", "evaluate"):
    group = open_group(backend="gloo", identity={"verb": verb})
    group.barrier()
    group.close()
    if group.rank == 0:
        time.sleep(1)
try:
    open_group(backend="gloo", identity={"verb": str(group.rank)})
except InputError as error:
    print(str(error).partition(": ")[2].partition(";")[0])
"""


def test_a_program_on_several_hosts_may_meet_again_and_again():
    job = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "DISTGNN_SECRET": "s" * 20}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWICE],
            env={**ENVIRON, **job, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, errors = rank.communicate(timeout=HANG_S)
        assert said.splitlines() == ["True", "verb 1 instead of 0"], errors
