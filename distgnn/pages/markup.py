"""Elements of a page, whose text cannot be taken for markup, and the page around them."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from distgnn import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is markup already: it alone is not escaped."""

    __slots__ = ()


_EMPTY = {"meta", "rect", "line", "polyline", "path", "circle", "stop"}
# Characters that no XML or HTML document may hold.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escaped(value: object) -> Html:
    """Turn a value into text that is safe inside elements and quoted attributes.

    Args:
        value: Anything; `Html` stays as it is.
    """
    if isinstance(value, Html):
        return value
    return Html(html.escape(_FORBIDDEN.sub("\ufffd", str(value)), quote=True))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Make an element.

    Args:
        name: Name of the element.
        *children: Content, escaped unless it is `Html`.
        **attributes: Attributes, escaped; an underscore stands for a hyphen, one at the end for
            nothing.
    """
    words = [name]
    for key, value in attributes.items():
        words.append(f'{key.rstrip("_").replace("_", "-")}="{escaped(value)}"')
    opened = " ".join(words)
    if name in _EMPTY:
        return Html(f"<{opened}/>")
    return Html(f"<{opened}>{join(children)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Put elements and texts one after another.

    Args:
        parts: Elements and texts, escaped unless they are `Html`.
        between: Separator, which is not escaped.
    """
    return Html(between.join(escaped(part) for part in parts))


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, caption: str) -> Html:
    """Make a table whose first column names the rows.

    Args:
        header: Names of the columns.
        rows: Rows with a cell for each column.
        caption: Title of the table.
    """
    head = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    content = (tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", tag("table", *content), class_="wide")


def folded(summary: str, *content: Html) -> Html:
    """Hide content behind a line that opens it."""
    return tag("details", tag("summary", summary), *content)


def figure(title: str, *content: Html, note: str = "") -> Html:
    """Put a title over a drawing, and a note below it."""
    below = (tag("p", note, class_="note"),) if note else ()
    return tag("figure", tag("figcaption", title), *content, *below)


def pair(*figures: Html) -> Html:
    """Put figures side by side where the screen has room, else below one another."""
    return tag("div", *figures, class_="pair")


def section(title: str, *content: Html) -> Html:
    """Make a section with a heading."""
    return tag("section", tag("h2", title), *content)


def page(title: str, *content: Html) -> str:
    """Make a whole document.

    Nothing in it runs or is fetched; a policy makes the browser refuse both.

    Args:
        title: Title of the document, escaped.
        *content: Sections of the document.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(_STYLE)),
    )
    foot = tag("footer", f"distgnn {__version__}")
    body = tag("body", tag("main", tag("h1", title), *content, foot))
    document = tag("html", tag("head", *head), body, lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def standalone(drawing: Html) -> str:
    """Make a drawing a file of its own, with the colours of a page.

    Args:
        drawing: An SVG element.
    """
    head, _, rest = drawing.partition(">")
    return f"{head}>{tag('style', Html(_STYLE))}{rest}\n"


# Series differ in dashes as well as in colour; the colours are after Okabe and Ito, which readers
# with impaired colour vision can tell apart, and lighter on a dark ground.
_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1b1b; --soft: #595959; --rule: #d9d9d9;
 --s1: #0072b2; --s2: #c44e00; --s3: #007a5a; --s4: #a0447f; --s5: #737373; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181c; --ink: #ececec; --soft: #b0b0b0;
 --rule: #3a3d43; --s1: #56b4e9; --s2: #f2954a; --s3: #35c79b; --s4: #e18cc0; --s5: #a8a8a8; } }
body { margin: 0; background: var(--ground); color: var(--ink);
 font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin-top: 2rem; }
figure { margin: 1.5rem 0; } figcaption, caption { font-weight: 600; text-align: left; }
svg { width: 100%; max-width: 44rem; height: auto; display: block; overflow: visible; }
svg text { font-size: 12px; }
@media (min-width: 48rem) { .pair figure:not(:only-child) .chart text { font-size: 18px; } }
@media (max-width: 37rem) { .chart text { font-size: 20px; } }
.pair { display: grid; gap: 0 1.5rem;
 grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); }
.pair figure { display: grid; grid-template-rows: subgrid; grid-row: span 4; margin: 0.6rem 0; }
svg.swatch { display: inline-block; width: 28px; height: 10px; vertical-align: middle; }
.name { white-space: nowrap; } .key { margin: 0.3rem 0; } .key .name { margin-right: 1.2rem; }
.band { fill: var(--ink); fill-opacity: 0; } .band:hover { fill-opacity: 0.12; }
.tiles { display: grid; gap: 0.8rem; margin: 1rem 0;
 grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr)); }
.tiles div { border: 1px solid var(--rule); border-radius: 8px; padding: 0.6rem 0.9rem; }
dt { color: var(--soft); font-size: 0.8rem; } dd { margin: 0; font-size: 1.25rem;
 font-variant-numeric: tabular-nums; } dd small { display: block; font-size: 0.75rem;
 color: var(--soft); min-height: 1.2em; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--rule);
 border-radius: 8px; padding: 0.6rem 0.9rem; font-size: 0.85rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; min-width: min(24rem, 100%); }
th, td { padding: 0.15rem 0.7rem; border-bottom: 1px solid var(--rule); text-align: right;
 font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); } tbody th, .facts td { font-weight: 400; }
th:first-child, .facts th, .facts td { text-align: left; } td { white-space: nowrap; }
.facts td { overflow-wrap: anywhere; white-space: normal; } caption { max-width: 90vw; }
.note, footer, summary { color: var(--soft); } .note { margin: 0.5rem 0; }
summary { cursor: pointer; }
footer { margin-top: 2.5rem; font-size: 0.85rem; }
@media print { :root { color-scheme: light; --ground: #fff; --ink: #000; --soft: #444;
 --rule: #bbb; --s1: #0072b2; --s2: #c44e00; --s3: #007a5a; --s4: #a0447f; --s5: #737373; }
 body { font-size: 11px; } main { max-width: none; padding: 0; }
 figure, .tiles, tr, pre { break-inside: avoid; } h2 { break-after: avoid; }
 .tiles { grid-template-columns: repeat(auto-fit, minmax(6rem, 1fr)); gap: 0.5rem; }
 .tiles div { padding: 0.4rem; } .tiles dd { font-size: 1rem; }
 .wide { overflow: visible; } th, td { overflow-wrap: anywhere; white-space: normal; }
 details:not([open]), section:has(> h2 + details:not([open]):last-child) { display: none; } }
"""
