"""Checkpoints: everything that the next epoch depends on, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_regular, read_whole, sync_directory
from distgnn.training.run.directory import unwritable
from distgnn.training.run.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.optim.average import NoAverage
    from distgnn.optim.optimizers import Optimizer

_KEPT = 2
_PREFIX = "epoch-"
_NAME = re.compile(_PREFIX + "[0-9]{6,}")
_BLOCK_BYTES = 1 << 20
_MANIFEST = "checkpoint.json"
_STATE = "state.safetensors"
_FIELDS = {"num_epochs": int, "layouts": list, "progress": dict, "files": dict}
_ANOTHER_CUT = "the checkpoint's delayed rows are of another partition"


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint.

    Attributes:
        num_epochs: Number of epochs done when it was written.
        progress: The trainer's own JSON values (best epoch and the like).
        state: Weights, optimizer and best weights, by name.
        rows: This rank's rows under way between epochs.
        why_cold: Why such rows that it holds cannot be used; empty if they are.
    """

    num_epochs: int
    progress: dict[str, Any]
    state: dict[str, Tensor]
    rows: dict[str, Tensor]
    why_cold: str = ""


class Checkpoints:
    """The checkpoints of a run; the last two are kept.

    Weights and optimizer are the same on all ranks, and rank 0 writes them. Rows that are under way
    in a delayed exchange differ between ranks. They are of use only to ranks whose parts have the
    same layout.

    Args:
        folder: Folder of the checkpoints.
        group: All ranks.
        layout: Layout of this rank's part.

    Attributes:
        damaged: Faults of newer checkpoints that reading passed over.
    """

    def __init__(self, folder: Path, group: Group, *, layout: str = "") -> None:
        self._folder = folder
        self._group = group
        self._layout = layout
        self.damaged: list[str] = []

    def write(
        self,
        num_epochs: int,
        progress: dict[str, Any],
        state: dict[str, Tensor],
        rows: dict[str, Tensor],
    ) -> None:
        """Write a checkpoint; collective.

        Args:
            num_epochs: Epochs done.
            progress: JSON values.
            state: State of the whole run; that of rank 0 is written.
            rows: Rows that are under way to this rank.

        Raises:
            InputError: If a rank cannot write; the older checkpoints are then untouched.
        """
        temporary = self._folder / f".{_folder_name(num_epochs)}.tmp"
        own = {_rows_name(self._group.rank): rows} if rows else {}
        if self._group.rank == 0:
            own[_STATE] = state
        values = {"num_epochs": num_epochs, "layouts": self._layouts(), "progress": progress}
        try:
            self._on_first_rank(temporary, lambda: self._make(temporary))
            values["files"] = self._write_files(temporary, own)
            self._on_first_rank(temporary / _MANIFEST, lambda: self._publish(temporary, values))
        except InputError:
            if self._group.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._group.set_checkpoint(num_epochs)

    def _layouts(self) -> list[str]:
        """Layouts of the parts of all ranks; collective."""
        return [text.decode() for text in self._group.all_gather_bytes(self._layout.encode())]

    def _on_first_rank(self, path: Path, action: Callable[[], None]) -> None:
        self._group.agree(_attempt(path, action) if self._group.rank == 0 else None)

    def _make(self, temporary: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # A run that was killed while it wrote leaves its folder, of whatever epoch.
        for left in self._folder.glob(f".{_PREFIX}*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()

    def _write_files(self, temporary: Path, own: dict[str, dict[str, Tensor]]) -> dict[str, str]:
        """Write this rank's files; return the digests of all ranks' files by name."""
        digests: dict[str, str] = {}

        def write_one(name: str) -> None:
            write_tensors(temporary / name, own[name])
            digests[name] = _digest(temporary / name)

        errors = (
            _attempt(
                temporary / name, partial(write_one, name), sum(map(_num_bytes, rows.values()))
            )
            for name, rows in own.items()
        )
        self._group.agree(next(filter(None, errors), None))
        gathered = self._group.all_gather_bytes(json.dumps(digests).encode())
        return {name: digest for text in gathered for name, digest in json.loads(text).items()}

    def _publish(self, temporary: Path, values: dict[str, Any]) -> None:
        with (temporary / _MANIFEST).open("w") as file:
            json.dump({**values, "digest": _digest_of(values)}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(temporary)
        final = self._folder / _folder_name(values["num_epochs"])
        aside = final.with_name(f".{final.name}.old.tmp")
        if final.is_dir():
            final.rename(aside)
        try:
            temporary.rename(final)
        except OSError:
            if aside.exists():
                aside.rename(final)
            raise
        # Before older ones are removed.
        sync_directory(self._folder)
        shutil.rmtree(aside, ignore_errors=True)
        # Newer ones were damaged, and passed over when the run was resumed.
        names = self._names()
        start = names.index(final.name)
        for old in names[:start] + names[start + _KEPT :]:
            shutil.rmtree(self._folder / old, ignore_errors=True)

    def _names(self) -> list[str]:
        """Names of the checkpoints' folders, newest first."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        found = [name for name in names if _NAME.fullmatch(name)]
        return sorted(found, key=_number, reverse=True)

    def read_newest(self) -> Checkpoint | None:
        """Read the newest whole checkpoint, or None if there is none; collective.

        All ranks read the same one: what is damaged for one rank is passed over by all.

        Raises:
            InputError: If there are checkpoints but none of them is whole.
        """
        layouts = self._layouts()
        for name in self._agreed_names():
            found: Checkpoint | None = None
            damage = ""
            try:
                found = self._read(self._folder / name, layouts)
            except (_DamagedError, InputError) as caught:
                damage = str(caught)
            reports = self._group.all_gather_bytes(damage.encode())
            first = next((report.decode() for report in reports if report), None)
            if first is None:
                self._group.set_checkpoint(_number(name))
                return found
            self.damaged.append(first)
        if self.damaged:
            raise InputError(self.damaged[0])
        return None

    def _agreed_names(self) -> list[str]:
        """The folders that rank 0 sees: a shared file system may show others elsewhere."""
        names: list[str] = []
        error: InputError | None = None
        if self._group.rank == 0:
            try:
                names = self._names()
            except OSError as caught:
                error = InputError(
                    f"cannot read checkpoints '{self._folder}': {caught.strerror}; "
                    "make the folder readable or choose another --run"
                )
        self._group.agree(error)
        return list(json.loads(self._group.all_gather_bytes(json.dumps(names).encode())[0]))

    def _read(self, folder: Path, layouts: list[str]) -> Checkpoint:
        values = _read_manifest(folder)
        files = values["files"]
        why_cold = ""
        if values["layouts"] != layouts and any(name != _STATE for name in files):
            why_cold = _ANOTHER_CUT
        # Each rank checks what it uses; together they check everything once.
        state = _read_one(folder / _STATE, files[_STATE])
        name = _rows_name(self._group.rank)
        has_own = name in files and not why_cold
        rows = _read_one(folder / name, files[name]) if has_own else {}
        return Checkpoint(values["num_epochs"], values["progress"], state, rows, why_cold)


class _DamagedError(Exception):
    """A checkpoint that cannot be used; an older one may be."""


def _folder_name(num_epochs: int) -> str:
    return f"{_PREFIX}{num_epochs:06d}"


def num_saved(folder: Path) -> int:
    """Return the epochs of the newest checkpoint, which may be damaged; 0 if there is none.

    Args:
        folder: Where checkpoints lie.
    """
    names = (path.name for path in folder.glob(f"{_PREFIX}*"))
    return max((_number(name) for name in names if _NAME.fullmatch(name)), default=0)


def _number(name: str) -> int:
    return int(name.removeprefix(_PREFIX))


def _rows_name(rank: int) -> str:
    return f"rows-{rank:04d}.safetensors"


def _digest(path: Path) -> str:
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _digest_of(values: dict[str, Any]) -> str:
    """Digest of JSON values, so that an altered manifest is noticed like any other file."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_whole(folder / _MANIFEST))
        is_whole = values.pop("digest") == _digest_of(values)
        is_whole = is_whole and _folder_name(values["num_epochs"]) == folder.name
        is_whole = is_whole and all(type(values[name]) is kind for name, kind in _FIELDS.items())
        is_whole = is_whole and type(values["files"].get(_STATE)) is str
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as caught:
        raise _DamagedError(
            f"checkpoint '{folder}' has no readable {_MANIFEST}; remove the folder"
        ) from caught
    if not is_whole:
        raise _DamagedError(f"checkpoint '{folder}' was altered; remove the folder")
    return dict(values)


def _read_one(path: Path, digest: str) -> dict[str, Tensor]:
    try:
        is_whole = _digest(path) == digest
    except OSError as caught:
        raise _DamagedError(f"'{path}' is missing; remove the checkpoint's folder") from caught
    if not is_whole:
        raise _DamagedError(f"'{path}' was altered or cut off; remove the checkpoint's folder")
    return read_tensors(path)


def _attempt(path: Path, action: Callable[[], None], num_bytes: int = 4096) -> InputError | None:
    """Do what writes a file; a small one takes a block of the disk."""
    try:
        action()
    except OSError as caught:
        # A failed write names no file, a failed rename two, of which the target is in the way.
        name = caught.filename2 or caught.filename or path
        shown = unwritable(Path(name), caught, num_bytes)
        return InputError(f"{shown}; the older checkpoints are as they were")
    return None


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def pack_state(
    model: nn.Module, optimizer: Optimizer, average: NoAverage, best: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Flatten what a run needs to continue into named tensors.

    Args:
        model: Model with its weights and buffers.
        optimizer: Optimizer with its moments, by number of the parameter.
        average: Average of the weights, if there is one.
        best: Weights of the best epoch, or nothing.

    Returns:
        Tensors by name.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict().items():
        tensors.update({f"optimizer.{number}.{name}": value for name, value in moments.items()})
    tensors.update({f"average.{name}": tensor for name, tensor in average.state().items()})
    tensors.update({f"best.{name}": tensor for name, tensor in best.items()})
    return tensors


def unpack_state(
    state: dict[str, Tensor], model: nn.Module, optimizer: Optimizer, average: NoAverage
) -> dict[str, Tensor]:
    """Restore what `pack_state` took.

    Args:
        state: Tensors by name.
        model: Receives weights and buffers.
        optimizer: Receives its moments.
        average: Receives the average of the weights.

    Returns:
        Weights of the best epoch, or nothing.

    Raises:
        InputError: If the tensors belong to another model.
    """
    try:
        model.load_state_dict(_under("model.", state))
    except RuntimeError as error:
        raise InputError(
            f"the checkpoint belongs to another model: {' '.join(str(error).split())}"
        ) from error
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimizer.", state).items():
        number, moment = name.split(".", 1)
        moments.setdefault(int(number), {})[moment] = tensor
    optimizer.load_state_dict(moments)
    average.load_state(_under("average.", state))
    return _under("best.", state)


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
