"""The secret that ranks on several hosts prove to each other: one of the user's."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.comm.launch import Kind

VARIABLE = "DISTGNN_SECRET"
_REMEDY = f"set {VARIABLE} to one secret text on all hosts"
# Names of the job, as its launcher gives them to all of its ranks.
_JOBS: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("TORCHELASTIC_RUN_ID",),
    "srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}
# Where another one started that launcher, ranks on other hosts may lack the names that it gave.
_OUTER = ("SLURM_JOB_ID", "SLURM_STEP_ID")


def secret_of_job(environ: Mapping[str, str], kind: Kind) -> bytes:
    """Return the secret of this job, the same for its ranks on all hosts that share the user's.

    It is made of the user's secret and of the name that the launcher gave to the job: a rank of
    another job of this user is refused too. The user's secret is `DISTGNN_SECRET`, or else a file
    of the home directory that only the user can read. The first job makes it. With the file, names
    count that the environment has of an outer launcher, too.

    Args:
        environ: The environment of this process.
        kind: The launcher.

    Raises:
        InputError: If the file cannot be made, or others can read it.
    """
    text = environ.get(VARIABLE, "")
    users = text.encode() if text else _of_file(_file(environ))
    own, outer = _JOBS.get(kind, ()), () if text else _OUTER
    names = "\n".join(environ.get(name, "") for name in (*own, *outer))
    return hmac.new(users, names.encode(), "sha256").digest()


def _file(environ: Mapping[str, str]) -> Path:
    try:
        folder = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError as error:
        raise InputError(
            "ranks on several hosts need a secret, which lies in the home directory, but this user "
            f"has none; {_REMEDY}"
        ) from error
    return folder / "distgnn" / "secret"


def _of_file(file: Path) -> bytes:
    try:
        if not file.exists():
            _make(file)
        info, text = file.stat(), file.read_bytes()
    except OSError as error:
        raise InputError(
            f"ranks on several hosts need a secret, but '{file}' cannot be used "
            f"({error.strerror}); {_REMEDY}"
        ) from error
    if stat.S_IMODE(info.st_mode) & 0o077 or info.st_uid != os.getuid() or len(text) < 16:
        raise InputError(
            f"'{file}' must be a secret of this user alone, but others can read it or it is too "
            f"short; remove it, or {_REMEDY}"
        )
    return text


def _make(file: Path) -> None:
    """Write a secret, whole or not at all, unless another rank has just done so."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(secrets.token_hex(32).encode())
            opened.flush()
            os.fsync(opened.fileno())
        # A link fails where there is a file, on NFS too; a renaming would replace it.
        with suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        temporary.unlink()
