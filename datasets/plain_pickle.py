"""A reader of pickles that builds plain values and nothing else.

A pickle names functions and has them called, so reading a stranger's file runs their code. Some
published graphs are pickles all the same. This reader interprets their instructions itself. It
builds numbers, texts, lists, tuples, dicts, numpy arrays and scipy matrices. It knows the few names
that these take, and refuses every other one. It imports and calls nothing by a name that a file
gives.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets._checks import check_compressed, computable
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

_CODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
# Instructions whose argument is the value itself.
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NAMES = {
    "numpy.dtype": "dtype",
    "numpy.ndarray": "ndarray",
    "numpy.core.multiarray._reconstruct": "array",
    "numpy._core.multiarray._reconstruct": "array",
    "numpy.core.multiarray.scalar": "scalar",
    "numpy._core.multiarray.scalar": "scalar",
    "scipy.sparse.csr.csr_matrix": "csr",
    "scipy.sparse._csr.csr_matrix": "csr",
    "scipy.sparse.csc.csc_matrix": "csc",
    "scipy.sparse._csc.csc_matrix": "csc",
    "copy_reg._reconstructor": "instance",
    "copyreg._reconstructor": "instance",
    "__builtin__.object": "object",
    "builtins.object": "object",
    "__builtin__.bytes": "bytes",
    "builtins.bytes": "bytes",
    "__builtin__.list": "list",
    "builtins.list": "list",
    "collections.defaultdict": "defaultdict",
    "_codecs.encode": "encode",
}
_DTYPE = re.compile(r"[<>|=]?[biufO][0-9]{1,2}")
_ROWS_PER_ENTRY, _MOST_EMPTY_ROWS = 10, 1_000_000
_DAMAGES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error),
    *(MemoryError, RecursionError),
)


class _Name:
    """A name that a file takes, as the word that this reader has for it."""

    def __init__(self, word: str) -> None:
        self.word = word


class _Pending:
    """An object whose contents come after it; `value` is what it became."""

    def __init__(self, word: str, value: Any = None) -> None:
        self.word = word
        self.value = value


def read_pickle(data: bytes, what: str) -> Any:
    """Read a pickle of plain values.

    Args:
        data: The pickle, of any protocol, written by Python 2 or 3.
        what: Name of the pickle, for messages.

    Returns:
        Numbers, texts (those of Python 2 decoded as Latin-1), bytes, lists, tuples, dicts (also
        for defaultdicts of lists), numpy arrays of numbers, and scipy CSR matrices. An array of
        objects becomes a list, or the object if it holds a single one.

    Raises:
        InputError: If the pickle is damaged, or holds anything else.
    """
    try:
        return _Machine(data).run()
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    except _DAMAGES as error:
        raise InputError(
            f"{what} is damaged or is no pickle ({error}); fetch it again from its source"
        ) from error


class _Machine:
    """The stack machine that a pickle is a program for."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return what is on the stack when the program stops."""
        while True:
            code = self._stream.read(1)
            if not code:
                raise ValueError("it ends in the middle")
            opcode = _CODES.get(code[0])
            if opcode is None:
                raise ValueError(f"byte {code[0]} is no instruction")
            if opcode.name == "STRING":
                argument: Any = _quoted(self._stream.readline())
            else:
                argument = None if opcode.arg is None else opcode.arg.reader(self._stream)
            if opcode.name == "STOP":
                return self._settled(self._stack.pop())
            self._step(opcode.name, argument)

    def _step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise InputError(
                f"the pickle uses {name}, which plain arrays and lists do not need; fetch the "
                "file from its publisher, or save it again with numpy.savez"
            )

    @staticmethod
    def _settled(value: Any) -> Any:
        return value.value if isinstance(value, _Pending) and value.value is not None else value

    def _above_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _mark(self, argument: Any) -> None:
        self._marks.append(len(self._stack))

    def _pop(self, argument: Any) -> None:
        self._stack.pop()

    def _pop_mark(self, argument: Any) -> None:
        self._above_mark()

    def _duplicate(self, argument: Any) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, argument: Any) -> None:
        self._memo[argument] = self._stack[-1]

    def _memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, argument: Any) -> None:
        self._stack.append(self._settled(self._memo[argument]))

    def _empty_list(self, argument: Any) -> None:
        self._stack.append([])

    def _empty_tuple(self, argument: Any) -> None:
        self._stack.append(())

    def _empty_dict(self, argument: Any) -> None:
        self._stack.append({})

    def _list(self, argument: Any) -> None:
        self._stack.append(self._above_mark())

    def _tuple(self, argument: Any) -> None:
        self._stack.append(tuple(self._above_mark()))

    def _last(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(items)

    def _dict(self, argument: Any) -> None:
        items = self._above_mark()
        self._stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _append(self, argument: Any) -> None:
        value = self._stack.pop()
        _checked(self._stack[-1], list).append(value)

    def _appends(self, argument: Any) -> None:
        items = self._above_mark()
        _checked(self._stack[-1], list).extend(items)

    def _set_item(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _checked(self._stack[-1], dict)[key] = value

    def _set_items(self, argument: Any) -> None:
        items = self._above_mark()
        pairs = zip(items[::2], items[1::2], strict=True)
        _checked(self._stack[-1], dict).update(pairs)

    def _global(self, argument: Any) -> None:
        # The reader of GLOBAL joins module and name by a blank.
        self._name(str(argument).replace(" ", ".", 1))

    def _stack_global(self, argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name(f"{module}.{name}")

    def _name(self, name: str) -> None:
        if name not in _NAMES:
            raise InputError(
                f"the pickle asks for {name!r}, and only arrays, matrices, lists and dicts are "
                "read; fetch the file from its publisher, or save it again with numpy.savez"
            )
        self._stack.append(_Name(_NAMES[name]))

    def _reduce(self, argument: Any) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        self._stack.append(_made(_checked(name, _Name).word, _checked(arguments, tuple)))

    def _new_object(self, argument: Any) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        word = _checked(name, _Name).word
        if word not in ("csr", "csc") or arguments != ():
            raise ValueError(f"{word} cannot be made so")
        self._stack.append(_Pending(word))

    def _build(self, argument: Any) -> None:
        state = self._stack.pop()
        pending = _checked(self._stack[-1], _Pending)
        if pending.word == "dtype":
            pending.value = _ordered(pending.value, _checked(state, tuple))
        elif pending.word == "array":
            pending.value = _array(_checked(state, tuple))
        else:
            pending.value = _matrix(pending.word, _checked(state, dict))
        self._stack[-1] = pending.value


def _steps() -> dict[str, Callable[[_Machine, Any], None]]:
    machine = _Machine
    return {
        "MARK": machine._mark,
        "POP": machine._pop,
        "POP_MARK": machine._pop_mark,
        "DUP": machine._duplicate,
        "MEMOIZE": machine._memoize,
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), machine._put),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), machine._get),
        "EMPTY_LIST": machine._empty_list,
        "EMPTY_TUPLE": machine._empty_tuple,
        "EMPTY_DICT": machine._empty_dict,
        "LIST": machine._list,
        "TUPLE": machine._tuple,
        "TUPLE1": lambda self, argument: self._last(1),
        "TUPLE2": lambda self, argument: self._last(2),
        "TUPLE3": lambda self, argument: self._last(3),
        "DICT": machine._dict,
        "APPEND": machine._append,
        "APPENDS": machine._appends,
        "SETITEM": machine._set_item,
        "SETITEMS": machine._set_items,
        "GLOBAL": machine._global,
        "STACK_GLOBAL": machine._stack_global,
        "REDUCE": machine._reduce,
        "NEWOBJ": machine._new_object,
        "BUILD": machine._build,
    }


_STEPS = _steps()


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} is where a {kind.__name__} belongs")
    return value


def _quoted(line: bytes) -> str:
    """Return the text of a quoted line of protocol 0, its bytes as Latin-1."""
    text = line.strip()
    if len(text) < 2 or text[:1] not in (b"'", b'"') or text[-1:] != text[:1]:
        raise ValueError("a text lacks its quotes")
    return text[1:-1].decode("unicode_escape")


def _made(word: str, arguments: tuple[Any, ...]) -> Any:
    if word == "dtype":
        text = _bytes(arguments[0]).decode("ascii")
        if not _DTYPE.fullmatch(text):
            raise ValueError(f"arrays of {text!r} are not read")
        return _Pending("dtype", np.dtype(text))
    if word == "array":
        return _Pending("array")
    if word == "scalar":
        kind, data = arguments
        if not isinstance(kind, np.dtype) or kind.hasobject:
            raise ValueError("a number has no type")
        return np.frombuffer(_bytes(data), kind, 1)[0].item()
    if word == "instance" and isinstance(arguments[0], _Name) and arguments[0].word[:2] == "cs":
        return _Pending(arguments[0].word)
    if word == "defaultdict":
        return {}
    if word == "bytes" and arguments == ():
        return b""
    if word == "encode" and arguments[1] == "latin1":
        return str(arguments[0]).encode("latin1")
    raise ValueError(f"{word} cannot be called")


def _bytes(value: Any) -> bytes:
    return value.encode("latin1") if isinstance(value, str) else bytes(_checked(value, bytes))


def _ordered(kind: np.dtype[Any], state: tuple[Any, ...]) -> np.dtype[Any]:
    """Give a dtype the byte order of its state; fields and subarrays are refused."""
    if any(part is not None for part in state[2:5]):
        raise ValueError("arrays of records are not read")
    order: Any = _bytes(state[1]).decode("ascii")
    ordered: np.dtype[Any] = kind.newbyteorder(order)
    return ordered


def _array(state: tuple[Any, ...]) -> Any:
    _, shape, kind, is_fortran, data = state
    if not isinstance(kind, np.dtype):
        raise ValueError("an array has no type")
    if kind.hasobject:
        items = _checked(data, list)
        if math.prod(shape) != len(items):
            raise ValueError(f"an array of shape {shape} has {len(items)} objects")
        return items[0] if shape == () else items
    values = np.frombuffer(_bytes(data), kind)
    return values.reshape(shape, order="F" if is_fortran else "C").copy()


def _matrix(word: str, state: dict[str, Any]) -> scipy.sparse.csr_matrix:
    build = scipy.sparse.csr_matrix if word == "csr" else scipy.sparse.csc_matrix
    shape = state["_shape"] if "_shape" in state else state["shape"]
    arrays = [_checked(state[key], np.ndarray) for key in ("data", "indices", "indptr")]
    native = tuple(map(computable, arrays))
    # Its conversion to CSR takes memory by the row, whether the row has entries or not.
    if _checked(shape, tuple)[0] > _ROWS_PER_ENTRY * sum(map(len, native)) + _MOST_EMPTY_ROWS:
        raise ValueError(f"a matrix of shape {shape} has {len(native[0])} entries")
    matrix = build(native, shape=shape)
    check_compressed(matrix)
    return matrix.tocsr()
