"""One word, one meaning: no two public classes of the package have one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Classes that still share their names; this set only shrinks.
LEFT = {"Csr", "Edges", "Member", "Relation", "Twin"}
# Adapters have the names of what they stand for.
ADAPTERS = (
    "distgnn/bench/peers/",
    "distgnn/interop/accelerate/dgl.py",
    "distgnn/interop/accelerate/pyg.py",
)


def shared_names(root: Path) -> dict[str, list[str]]:
    """Return the files of each name that several public classes of the rooms have."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for room in ("distgnn", "partition", "datasets"):
        for path in sorted((root / room).rglob("*.py")):
            shown = path.relative_to(root).as_posix()
            if shown.startswith(ADAPTERS):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(shown)
    return {name: files for name, files in found.items() if len(files) > 1}


def test_every_public_class_has_a_name_of_its_own():
    shared = shared_names(ROOT)
    assert {name: files for name, files in shared.items() if name not in LEFT} == {}


def test_a_shared_name_is_found(tmp_path):
    for room in ("distgnn", "partition"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "one.py").write_text("class Same: ...\nclass _Own: ...\n")
    assert shared_names(tmp_path) == {"Same": ["distgnn/one.py", "partition/one.py"]}
