"""Put the pages of the documentation together for Sphinx.

    python docs/stage.py build/docs/source

Pages of this folder are copied. Pages that lie elsewhere in the repository are taken from there,
and references are made from the program itself: the options from the parser, the cheat sheet from
the kinds of layers. Links lead to the page of a file if it has one.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli import VERBS, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
INCLUDED = {
    "systems/adaptive": "examples/strategies/adaptive.md",
    "systems/alone": "examples/strategies/alone.md",
    "systems/by_value": "examples/strategies/by_value.md",
    "systems/bytegrad": "examples/strategies/bytegrad.md",
    "systems/cgx": "examples/strategies/cgx.md",
    "systems/fewer-epochs": "examples/strategies/fewer-epochs.md",
    "systems/background": "examples/strategies/background.md",
    "systems/kfac": "examples/strategies/kfac.md",
    "systems/llcg": "examples/strategies/llcg.md",
    "systems/local": "examples/strategies/local.md",
    "systems/others": "examples/strategies/others.md",
    "systems/skewscout": "examples/strategies/skewscout.md",
    "systems/words": "examples/strategies/README.md",
    "systems/partitioners": "partition/methods/README.md",
    "reference/door": "distgnn/api/README.md",
    "reference/formats": "partition/directory/README.md",
    "reference/recipes": "examples/recipes/README.md",
    "reference/interop": "distgnn/interop/README.md",
    "results/accuracy": "examples/accuracy/RESULTS.md",
    "results/codes": "examples/strategies/ACCURACY.md",
    "results/epochs": "examples/strategies/SECOND_ORDER.md",
    "results/findings": "examples/bench/FINDINGS.md",
    "results/gpu": "examples/bench/GPU.md",
    "results/accelerate": "examples/bench/ACCELERATE.md",
    "results/peers": "examples/bench/RESULTS.md",
    "results/partitions": "partition/TABLE.md",
    "results/lab": "examples/lab/RESULTS.md",
    "results/tuning": "examples/tuning/README.md",
    "changes": "CHANGELOG.md",
}
"""Pages that lie elsewhere in the repository, by name of the page."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|$~#])")


def main() -> None:
    """Write all pages into the folder that is given."""
    out = Path(sys.argv[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = str(path.relative_to(ROOT / "docs").with_suffix(""))
        _write(out, name, rewritten(path.read_text("utf-8"), path, name))
    shutil.copytree(ROOT / "docs/pictures", out / "pictures")
    for name, source in INCLUDED.items():
        path = ROOT / source
        _write(out, name, rewritten(path.read_text("utf-8"), path, name))
    for name, text in {**verb_pages(), "reference/layers": cheat_sheet(), **api_pages()}.items():
        _write(out, name, text)


def _write(out: Path, name: str, text: str) -> None:
    path = out / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the page of each file that has one."""
    own = {
        path: str(path.relative_to(ROOT / "docs").with_suffix(""))
        for path in (ROOT / "docs").rglob("*.md")
    }
    return own | {ROOT / source: name for name, source in INCLUDED.items()}


def rewritten(text: str, path: Path, name: str) -> str:
    """Let the links of a page lead to pages.

    A link to a file without a page becomes its path in the repository, as text.

    Args:
        text: Markdown.
        path: File that it is from.
        name: Name of its page.

    Raises:
        ValueError: If a link leads nowhere.
    """
    known = pages()

    def link(found: re.Match[str]) -> str:
        shown, target, part = found[1], found[2], found[3] or ""
        if re.match(r"\w+:", target) or not target:
            return found[0]
        place = path.parent / target
        resolved = Path(os.path.normpath(place))
        # A link to a folder means its README.
        page = known.get(resolved) or known.get(resolved / "README.md")
        if page is not None:
            return f"[{shown}]({os.path.relpath(page, Path(name).parent)}.md{part})"
        # A page of another folder, or one that is made, is named by its page.
        made = Path(os.path.normpath(Path(name).parent / target)).with_suffix("")
        if str(made) in {*MADE, *INCLUDED}:
            return found[0]
        if not place.exists():
            raise ValueError(f"{path}: a link leads to {target}, which is not there")
        return f"{shown} (`{resolved.relative_to(ROOT)}`)"

    return _LINK.sub(link, text)


def verb_pages() -> dict[str, str]:
    """Return a page for each verb: what it does, and every option."""
    parser = build_parser()
    actions = parser._actions
    (verbs,) = (a.choices for a in actions if isinstance(a, argparse._SubParsersAction))
    return {f"reference/{name}": "".join(_verb_page(verbs[name])) for name in VERBS}


def _verb_page(verb: argparse.ArgumentParser) -> Iterator[str]:
    yield f"# {verb.prog}\n{_plain(verb.description or '')}\n\n"
    if verb.epilog:
        yield f"{_plain(verb.epilog)}\n\n"
    for group in verb._action_groups:
        if not group._group_actions:
            continue
        yield f"## {(group.title or 'options').capitalize()}\n"
        for action in group._group_actions:
            # The formatter knows what %(default)s and the like stand for.
            formatter = verb._get_formatter()
            text = formatter._expand_help(action) if action.help else ""
            words = formatter._format_action_invocation(action)
            yield f"`{words}`\n: {_plain(text)}\n\n"


def _plain(text: str) -> str:
    """Return text without markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def cheat_sheet() -> str:
    """Return a table of all layers, made from their kinds."""
    from distgnn import nn
    from distgnn.nn.config import KINDS, ModelConfig
    from distgnn.nn.relational import GraphSize

    size = GraphSize(num_vertices=4, num_relations=2)
    public = {getattr(nn, name): name for name in nn.__all__}
    rows = []
    for name, kind in KINDS.items():
        config = ModelConfig(model=name)
        layer = kind.on(size, config).build(config, 8, 8, is_last=True)
        shown = public.get(type(layer), type(layer).__name__)
        options = ", ".join(f"`--{option.replace('_', '-')}`" for option in sorted(kind.options))
        propagation = getattr(nn, shown.removesuffix("Conv"), None)
        paper = _paper_of(type(layer)) or _paper_of(propagation or object)
        has = {
            "weights": not kind.why_weightless(config),
            "edge features": "edge_features" in kind.options,
            "static input": not kind.why_not_static(config),
            "receptive field": not kind.why_not_restricted(config),
        }
        marks = " | ".join("yes" if value else "-" for value in has.values())
        rows.append(f"| `{name}` | `{shown}` | {options} | {marks} | {paper} |")
    return f"""# Layers at a glance
Names of `--model`, the layers of `dg.nn` behind them, and what each can do.

| `--model` | layer | options | weights of edges | features of edges | {_COLUMNS} | paper |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

- *Static input*: what the first layer reads of neighbours is summed once, not in every epoch.
- *Receptive field*: layers run on the rows that the loss reads, not on all.
- `rgcn` and `rsage` are for graphs with types of edges.

See [exact savings](../concepts.md) and [the options of train](train.md).
"""


_COLUMNS = "static input | receptive field"


def _paper_of(layer: type) -> str:
    text = inspect.getdoc(layer) or ""
    found = re.search(r'References:\s+(.*?), "(.*?)", (.*?\d{4})', text, re.DOTALL)
    return "" if found is None else _plain(f"{found[1]}, {found[3]}")


def api_pages() -> dict[str, str]:
    """Return the page of all public names; autosummary makes a page of each."""
    import distgnn

    kinds: dict[str, list[str]] = {"Functions": [], "Classes": []}
    for name in distgnn.__all__:
        value = getattr(distgnn, name)
        if inspect.ismodule(value):
            continue
        kinds["Classes" if inspect.isclass(value) else "Functions"].append(f"distgnn.{name}")
    for title, module in (("Layers", "nn"), ("Optimizers", "optim")):
        names = importlib.import_module(f"distgnn.{module}").__all__
        kinds[title] = [f"distgnn.{module}.{name}" for name in names]
    text = "# Python\n`import distgnn as dg`: every public name.\n"
    for title, names in kinds.items():
        listed = "\n".join(names)
        text += f"\n## {title}\n```{{eval-rst}}\n.. autosummary::\n   :toctree: api\n\n"
        text += "".join(f"   {name}\n" for name in listed.splitlines()) + "```\n"
    return {"reference/python": text}


MADE = {*(f"reference/{name}" for name in VERBS), "reference/layers", "reference/python"}
"""Pages without a file."""


if __name__ == "__main__":
    main()
