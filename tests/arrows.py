"""The arrows between the rooms, and a checker that reads the imports of a source tree."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A module of the runtime imports its own layer and the layers before it.
LAYERS = (
    ("settings",),
    ("kernels", "gpu"),
    ("comm",),
    ("machine",),
    ("ops",),
    ("exchange",),
    ("edges",),
    ("aggregate",),
    ("graph",),
    ("nn",),
    ("optim",),
    ("weights",),
    ("training",),
    ("forecast",),
    ("interop",),
    ("pages",),
    ("bench",),
    ("api",),
    ("tuning",),
    ("cli",),
    ("__main__",),
)
# What each room may import besides the standard library and distgnn.
PACKAGES = {
    "datasets": {"numpy", "scipy", "pyarrow"},
    "partition": {"numpy", "scipy", "numba", "pymetis", "kaminpar", "mtkahypar"},
    "distgnn": {
        "numpy",
        "scipy",
        "torch",
        "triton",
        "mpi4py",
        "rich",
        "IPython",
        "pyarrow",
        "mlflow",
        "wandb",
        "safetensors",
        "optuna",
        "ray",
    },
}
# Optional packages: importing our module must work without them.
OPTIONAL = {
    "pyarrow",
    "mpi4py",
    "rich",
    "IPython",
    "mlflow",
    "wandb",
    "dgl",
    "triton",
    "optuna",
    "ray",
    "kaminpar",
    "mtkahypar",
}
# A room that is imported where it is used, and what its modules may import at their top level.
LAZY_ROOMS = {"distgnn.gpu": "triton"}
# What the adapters of the benchmarks may import, and nobody else.
PEERS = {"dgl", "torch_geometric", "torch_sparse"}
# The room of the typed fronts of the compiled module.
FRONTS = "distgnn.kernels"
# The compiled module of the partitioner, which needs no torch.
PARTITIONER = "distgnn._partitioner"
# What the runtime may take from the datasets.
SHARED_DATASETS = {
    "distgnn.datasets.columns",
    "distgnn.datasets.errors",
    "distgnn.datasets.files",
    "distgnn.datasets.graph",
    "distgnn.datasets.limits",
    "distgnn.datasets.scale",
    "distgnn.datasets.twins",
    ("distgnn.datasets", "InputError"),
    ("distgnn.datasets", "Graph"),
}
# The only partition module that the runtime imports.
STORE = "distgnn.partition.directory.store"
# The partition modules that the runtime reads, and what they may therefore not load.
LIGHT_PARTITION = {"build", "csr", "quality", "directory.store", "directory.whole"}
HEAVY = {"numba", "pymetis"}
MAX_LINES = 800
# Modules that still import each other in a circle: this set only ever shrinks.
CIRCLES_LEFT: set[str] = set()
# Arrows that still point upward: this set only ever shrinks, too.
ARROWS_LEFT: set[tuple[str, str]] = set()


class Import(NamedTuple):
    """One imported module and the name taken from it; is_lazy unless it runs at import time."""

    module: str
    name: str
    is_lazy: bool


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _imports(node: ast.AST, known: set[str], *, is_lazy: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, "", is_lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = "." * child.level + (child.module or "")
            for alias in child.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in known else base, alias.name, is_lazy)
        elif (
            isinstance(child, ast.Call)
            and ast.unparse(child.func).endswith("import_module")
            and child.args
            and isinstance(child.args[0], ast.Constant)
        ):
            yield Import(str(child.args[0].value), "", is_lazy=True)
        starts_lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        below = is_lazy or starts_lazy or _is_type_checking(child)
        yield from _imports(child, known, is_lazy=below)


def _modules(root: Path) -> dict[str, Path]:
    """Importable name of every Python file of the rooms."""
    found = {}
    for room in ("distgnn", "partition", "datasets"):
        prefix = () if room == "distgnn" else ("distgnn",)
        for path in sorted((root / room).rglob("*.py")):
            parts = (*prefix, *path.relative_to(root).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def violations(root: Path) -> list[str]:
    """Return a sentence for every broken arrow or rule below root; an empty list is good."""
    modules = _modules(root)
    known = set(modules) | {"distgnn._kernels", PARTITIONER}
    imports = {
        name: list(_imports(ast.parse(path.read_text()), known)) for name, path in modules.items()
    }
    found = []
    for name, path in modules.items():
        shown = path.relative_to(root)
        for item in imports[name]:
            problem = _problem(name, item)
            if problem:
                found.append(f"{shown} imports {item.module}, {problem}")
        found.extend(f"{shown} {problem}" for problem in _content_problems(path))
    # The door tells type checkers what lies behind it, and the version is read through it.
    targets = {
        name: {item.module for item in imports[name]} - {name}
        for name in modules
        if name != "distgnn"
    }
    for circle in circles(targets):
        if not set(circle) <= CIRCLES_LEFT:
            found.append(f"{', '.join(circle)} import each other in a circle")
    for light in sorted(LIGHT_PARTITION):
        found.extend(_heavy_loads(f"distgnn.partition.{light}", imports))
    return found + _csrc_problems(root)


def _room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else "distgnn"


def _problem(name: str, item: Import) -> str | None:
    """Say what is wrong with an import, if anything is."""
    top = item.module.split(".")[0]
    if top in {"partition", "datasets"}:
        return f"a bare name that is not ours; import distgnn.{item.module}"
    if item.module.startswith("."):
        return "a relative name; write it in full"
    if top == "distgnn":
        return _internal_problem(name, item)
    if top in sys.stdlib_module_names:
        return "which runs code from files" if top in {"pickle", "marshal", "shelve"} else None
    if name.startswith("distgnn.interop."):
        return None
    if name.startswith("distgnn.bench.peers.") and top in PEERS:
        return None if item.is_lazy else "a peer, at its top level; import it where it is used"
    if top not in PACKAGES[_room(name)]:
        return f"which {_room(name)}/ may not"
    room = ".".join(name.split(".")[:2])
    if top in OPTIONAL and not item.is_lazy and LAZY_ROOMS.get(room) != top:
        return "an optional package, at its top level; import it where it is used"
    return None


def _internal_problem(name: str, item: Import) -> str | None:
    module = item.module
    source, target = _room(name), _room(module)
    lazy_room = ".".join(module.split(".")[:2])
    if lazy_room in LAZY_ROOMS and not item.is_lazy and not name.startswith(lazy_room):
        return "at its top level; import it where it is used"
    if module == "distgnn._kernels":
        return None if name.startswith(FRONTS) else "which only distgnn/kernels/ may"
    if module == PARTITIONER:
        return None if source == "partition" else "which only partition/ may"
    if source == "datasets":
        return None if target == "datasets" else "which datasets/ may not"
    if source == "partition":
        return None if target in {"datasets", "partition"} else "which partition/ may not"
    layer = _layer(name)
    if layer is None:
        return None if name == "distgnn" else "but has no layer; give it one in tests/arrows.py"
    if target == "distgnn":
        wanted = _layer(module)
        is_below = wanted is not None and (wanted <= layer or (name, module) in ARROWS_LEFT)
        return None if is_below or module == "distgnn" else f"which is above {_first_room(name)}"
    if _first_room(name) in {"api", "cli", "interop", "__main__"}:
        return None
    if target == "partition":
        return None if module == "distgnn.partition.directory.store" else "which only the cli may"
    is_allowed = module in SHARED_DATASETS or item[:2] in SHARED_DATASETS
    return None if is_allowed else "which only the cli may"


def _first_room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def _layer(name: str) -> int | None:
    room = _first_room(name)
    return next((number for number, rooms in enumerate(LAYERS) if room in rooms), None)


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle, at any time.

    Args:
        imports: The modules that each module imports, type checking and functions included.

    Returns:
        The strongly connected components of more than one module, by Tarjan's algorithm.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(imports[name] & set(imports)):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            at = stack.index(name)
            members = sorted(stack[at:])
            del stack[at:]
            if len(members) > 1:
                found.append(members)

    for name in sorted(imports):
        if name not in number:
            visit(name)
    return found


def _content_problems(path: Path) -> Iterator[str]:
    text = path.read_text()
    num_lines = text.count("\n")
    if num_lines > MAX_LINES:
        yield f"has {num_lines} lines, at most {MAX_LINES} are allowed"
    if not text.isascii():
        yield "is not ASCII"
    for call in re.findall(r"\btorch\.load\(|allow_pickle=True", text):
        yield f"contains {call}"


def _heavy_loads(start: str, imports: dict[str, list[Import]]) -> Iterator[str]:
    """Follow the imports that run at import time, packages' __init__ files included."""
    waiting, seen = [start], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        for item in imports.get(name, []):
            if item.is_lazy:
                continue
            if item.module.split(".")[0] in HEAVY:
                yield f"{start} loads {item.module} through {name}, which the runtime may not"
            waiting.append(item.module)


def _csrc_problems(root: Path) -> list[str]:
    found = []
    for path in sorted((root / "csrc").glob("*")):
        if path.suffix not in {".cpp", ".h"}:
            continue
        text = path.read_text()
        if text.count("\n") > MAX_LINES:
            found.append(f"csrc/{path.name} has more than {MAX_LINES} lines")
        if not text.isascii():
            found.append(f"csrc/{path.name} is not ASCII")
        if path.name.startswith("bind"):
            continue
        headers = re.findall(r'#include\s*[<"](Python\.h|nanobind/[^>"]*|torch/[^>"]*)[>"]', text)
        found.extend(f"csrc/{path.name} includes {h}, which only bind* may" for h in headers)
        calls = re.findall(r"\b(?:std::)?(printf|cout|cerr|exit|abort|malloc)\b\s*[(<]", text)
        found.extend(f"csrc/{path.name} uses {call}, which a kernel may not" for call in calls)
    return found
