"""Drawings as SVG: coloured by the page's style, and described for those who cannot see them."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, NamedTuple

from distgnn.machine.units import human_bytes
from distgnn.pages.markup import Html, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 90.0, 24.0, 30.0, 48.0
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 2")
# More points than this add nothing that a reader could see.
_MAX_POINTS = 600
_MAX_COLUMNS = 120
_MAX_LABELLED = 16
# Places of a drawing of curves that show their values to a pointer.
_MAX_BANDS = 40
_MOST_LETTERS = 50
# Largest side of a cell of a map.
_CELL = 96.0
# Drawings with room for larger letters, which narrow columns show.
_CHART = "chart"


class _Scale(NamedTuple):
    """Where values of an axis lie."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.begin + (value - self.low) / span * (self.end - self.begin)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose round values that divide an axis.

    Args:
        low: Its begin.
        high: Its end, at least `low`.
        count: About how many are wanted.

    Returns:
        Multiples of 1, 2 or 5 times a power of ten, in order.
    """
    rough = (high - low) / count
    if not rough > sys.float_info.min:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _text(x: float, y: float, value: object, *, anchor: str = "middle", soft: bool = True) -> Html:
    colour = "var(--soft)" if soft else "var(--ink)"
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    return tag("text", value, **place, text_anchor=anchor, style=f"fill:{colour}")


def _line(x1: float, y1: float, x2: float, y2: float, *, dash: str = "") -> Html:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    style = f"stroke:var(--rule);stroke-dasharray:{dash or 'none'}"
    return tag("line", **ends, style=style)


def _rect(x: float, y: float, width: float, height: float, style: str, title: str) -> Html:
    place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{width:.2f}", "height": f"{height:.2f}"}
    shape = tag("rect", **place, style=style)
    return tag("g", tag("title", title), shape) if title else shape


def _svg(description: str, *content: Html, height: float = _HEIGHT, kind: str = "") -> Html:
    return tag(
        "svg",
        tag("title", description),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label=description,
        **({"class_": kind} if kind else {}),
    )


def _axes(
    x: _Scale,
    y: _Scale,
    labels: tuple[str, str],
    write: Callable[[float], str],
    *,
    has_places: bool = True,
) -> list[Html]:
    """Rules and their values, and what the axes are."""
    drawn = []
    # Round in the unit that they are written in.
    unit = 1024.0 ** int(math.log(max(y.high, 1.0), 1024)) if write is human_bytes else 1.0
    for value in (unit * value for value in ticks(y.low / unit, y.high / unit)):
        drawn += [
            _line(_LEFT, y(value), _WIDTH - _RIGHT, y(value)),
            _text(_LEFT - 6, y(value) + 4, write(value), anchor="end"),
        ]
    drawn += [
        _text(x(value), _HEIGHT - _BOTTOM + 20, int(value))
        for value in ticks(x.low, x.high, 8)
        if has_places and float(value).is_integer()
    ]
    drawn.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, labels[0]))
    drawn.append(_text(4, 14, labels[1], anchor="start"))
    return drawn


def _legend(names: Sequence[str]) -> list[Html]:
    drawn = []
    place = _WIDTH - _RIGHT
    for number, name in reversed(list(enumerate(names))):
        place -= 7.0 * len(name)
        drawn.append(_text(place, 14, name, anchor="start", soft=False))
        place -= 26
        style = _stroke(number)
        drawn.append(tag("line", x1=place, y1=10, x2=place + 20, y2=10, style=style))
        place -= 10
    return drawn


def _colour(number: int) -> str:
    return f"var(--s{number % 5 + 1})"


def _stroke(number: int) -> str:
    # After five curves the colours begin again, with other dashes.
    dash = _DASHES[(number + number // 5) % 5] or "none"
    return f"fill:none;stroke:{_colour(number)};stroke-width:2;stroke-dasharray:{dash}"


def lines(
    series: Mapping[str, Points],
    *,
    labels: tuple[str, str],
    description: str,
    write: Callable[[float], str],
    from_zero: bool = False,
    has_legend: bool = True,
) -> Html:
    """Draw curves, whose values a pointer reads off.

    Args:
        series: Points by name, in ascending order; at least one.
        labels: Names of the two axes.
        description: Description of the drawing for readers who cannot see it.
        write: Turns a value of the vertical axis into text.
        from_zero: Whether that axis begins at 0.
        has_legend: Whether the drawing names the curves itself.

    Returns:
        The drawing.
    """
    points = [point for curve in series.values() for point in curve]
    low, high = min(value for _, value in points), max(value for _, value in points)
    low = min(low, 0.0) if from_zero else low
    pad = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
    low = low if from_zero else low - pad
    places = [point[0] for point in points]
    x = _Scale(min(places), max(places), _LEFT, _WIDTH - _RIGHT)
    y = _Scale(low, high + pad, _HEIGHT - _BOTTOM, _TOP)
    drawn = _axes(x, y, labels, write)
    for number, curve in enumerate(series.values()):
        if not curve:
            continue
        step = max(-(-len(curve) // _MAX_POINTS), 1)
        kept = [*curve[::step], *curve[-1:]]
        ends = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in kept)
        if len(curve) == 1:
            drawn.append(_rect(x(kept[0][0]) - 2, y(kept[0][1]) - 2, 4, 4, _fill(number), ""))
        else:
            drawn.append(tag("polyline", points=ends, style=_stroke(number)))
    drawn += _bands(series, x, labels[0], write)
    legend = _legend(list(series)) if has_legend else []
    return _svg(description, *drawn, *legend, kind=_CHART)


def _bands(
    series: Mapping[str, Points], x: _Scale, label: str, write: Callable[[float], str]
) -> list[Html]:
    """Columns over the whole drawing that tell a pointer the values of all curves there."""
    places = sorted({place for curve in series.values() for place, _ in curve})
    step = max(-(-len(places) // _MAX_BANDS), 1)
    kept = places[::step]
    lasts = {name: iter(curve) for name, curve in series.items()}
    waiting = {name: next(curve, None) for name, curve in lasts.items()}
    values: dict[str, float] = {}
    drawn = []
    for number, place in enumerate(kept):
        for name, curve in lasts.items():
            while (point := waiting[name]) is not None and point[0] <= place:
                values[name], waiting[name] = point[1], next(curve, None)
        begin = x.begin if number == 0 else (x(kept[number - 1]) + x(place)) / 2
        end = x.end if number == len(kept) - 1 else (x(place) + x(kept[number + 1])) / 2
        shown = ", ".join(f"{name} {write(value)}" for name, value in values.items())
        area = {"x": f"{begin:.1f}", "width": f"{end - begin:.1f}", "y": f"{_TOP:g}"}
        band = tag("rect", **area, height=f"{_HEIGHT - _BOTTOM - _TOP:g}", class_="band")
        drawn.append(tag("g", tag("title", f"{label} {human_place(place)}: {shown}"), band))
    return drawn


def human_place(place: float) -> str:
    """Write a place on the horizontal axis."""
    return f"{place:.0f}" if float(place).is_integer() else f"{place:.3g}"


def bars(
    values: Mapping[str, float | None], *, description: str, write: Callable[[float], str]
) -> Html:
    """Draw a bar for each name, with its value at its end.

    Args:
        values: Values by name, not negative; at least one. None has no bar, but its name.
        description: Description of the drawing for readers who cannot see it.
        write: Turns a value into text.

    Returns:
        The drawing.
    """
    most = max((value for value in values.values() if value is not None), default=0.0) or 1.0
    drawn, room, each = [], _WIDTH - 120.0, 52.0
    for number, (name, value) in enumerate(values.items()):
        top = each * number
        shown = name if len(name) <= _MOST_LETTERS else f"...{name[-_MOST_LETTERS + 3 :]}"
        drawn.append(_text(0, top + 18, shown, anchor="start", soft=False))
        if value is None:
            drawn.append(_text(0, top + 40, "-", anchor="start"))
            continue
        title, long = f"{name}: {write(value)}", room * value / most
        drawn.append(_rect(0, top + 25, long, 18, _fill(number), title))
        drawn.append(_text(long + 8, top + 40, write(value), anchor="start"))
    return _svg(description, *drawn, height=each * len(values), kind=_CHART)


def legend(names: Iterable[str], *, is_filled: bool = False) -> Html:
    """Say above a drawing which curve or layer is which; wraps on narrow screens.

    Args:
        names: Names in the order of the drawing.
        is_filled: Whether layers are named, not curves.
    """
    return tag("p", *legend_names(names, is_filled=is_filled), class_="key")


def legend_names(names: Iterable[str], *, is_filled: bool = False) -> list[Html]:
    """Put before each name a piece of its curve or layer.

    Args:
        names: Names in the order of the drawing.
        is_filled: Whether layers are named, not curves.
    """
    return [
        tag("span", _swatch(number, is_filled=is_filled), " ", name, class_="name")
        for number, name in enumerate(names)
    ]


def _swatch(number: int, *, is_filled: bool) -> Html:
    if is_filled:
        piece = _rect(8, 0, 12, 10, _fill(number), "")
    else:
        piece = tag("line", x1=0, y1=5, x2=28, y2=5, style=_stroke(number))
    return tag("svg", piece, viewBox="0 0 28 10", class_="swatch", aria_hidden="true")


def _fill(number: int) -> str:
    return f"fill:{_colour(number)}"


def stack(
    layers: Mapping[str, Sequence[float]],
    *,
    labels: tuple[str, str],
    description: str,
    write: Callable[[float], str],
) -> Html:
    """Draw columns made of layers, which `legend` names; where too many, means of neighbours.

    Args:
        layers: A value for each column, by name; at least one column.
        labels: Names of the two axes.
        description: Description of the drawing for readers who cannot see it.
        write: Turns a value of the vertical axis into text.

    Returns:
        The drawing.
    """
    count = len(next(iter(layers.values())))
    step = -(-count // _MAX_COLUMNS)
    means = {
        name: [
            math.fsum(values[first : first + step]) / len(values[first : first + step])
            for first in range(0, count, step)
        ]
        for name, values in layers.items()
    }
    totals = [math.fsum(column) for column in zip(*means.values(), strict=True)]
    x = _Scale(0, count, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(0.0, max([*totals, 0.0]) or 1.0, _HEIGHT - _BOTTOM, _TOP)
    drawn = _axes(x, y, labels, write)
    below = [0.0] * len(totals)
    for number, (name, values) in enumerate(means.items()):
        for column, value in enumerate(values):
            top, bottom = y(below[column] + value), y(below[column])
            begin, end = x(column * step), x(min((column + 1) * step, count))
            title = f"{name}, {labels[0]} {column * step}: {write(value)}"
            drawn.append(
                _rect(begin, top, 0.92 * (end - begin), bottom - top, _fill(number), title)
            )
            below[column] += value
    return _svg(description, *drawn, kind=_CHART)


def columns(
    values: Sequence[float], *, name: str, description: str, write: Callable[[float], str]
) -> Html:
    """Draw a column for each rank, and a line at their mean.

    Args:
        values: Values of the ranks, not negative; at least one.
        name: Name of the values.
        description: Description of the drawing for readers who cannot see it.
        write: Turns a value into text.

    Returns:
        The drawing.
    """
    count, mean = len(values), math.fsum(values) / len(values)
    x = _Scale(0, count, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(0.0, max([*values, 0.0]) or 1.0, _HEIGHT - _BOTTOM, _TOP)
    drawn = _axes(x, y, ("rank", name), write, has_places=False)
    for rank, value in enumerate(values):
        title = f"rank {rank}: {write(value)}"
        width = 0.8 * (x(1) - x(0))
        drawn.append(_rect(x(rank + 0.1), y(value), width, y(0) - y(value), _fill(0), title))
    for rank in _labelled(count):
        drawn.append(_text(x(rank + 0.5), _HEIGHT - _BOTTOM + 20, rank))
    style = f"{_stroke(1)};stroke-width:1.5"
    ends = {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": f"{y(mean):.1f}", "y2": f"{y(mean):.1f}"}
    drawn.append(tag("line", **ends, style=style))
    drawn.append(_text(_WIDTH - _RIGHT, 14, f"mean {write(mean)}", anchor="end", soft=False))
    return _svg(description, *drawn, kind=_CHART)


def _labelled(count: int) -> range:
    return range(0, count, -(-count // _MAX_LABELLED))


def heat_map(
    cells: Sequence[Sequence[float]],
    *,
    description: str,
    write: Callable[[float], str],
    groups: Sequence[range] | None = None,
) -> Html:
    """Draw a square table, where a larger value makes a darker cell.

    Args:
        cells: Values by row and column, not negative; at least one.
        description: Description of the drawing for readers who cannot see it.
        write: Turns a value into text.
        groups: Ranks that each row and each column stands for; by default one rank each.

    Returns:
        The drawing, with a scale.
    """
    count = len(cells)
    ranks = groups or [range(rank, rank + 1) for rank in range(count)]
    most = max(max(row) for row in cells) or 1.0
    side = min(480.0 / count, _CELL)
    left, top, whole = 90.0, 46.0, side * count
    turned = f"translate(34 {top + whole / 2:g}) rotate(-90)"
    drawn = [
        _text(left + whole / 2, 14, "to rank"),
        tag("g", _text(0, 0, "from rank"), transform=turned),
    ]
    for number in _labelled(count):
        middle = (number + 0.5) * side
        drawn.append(_text(left + middle, 38, ranks[number][0]))
        drawn.append(_text(left - 8, top + middle + 5, ranks[number][0], anchor="end"))
    for sender, row in enumerate(cells):
        for receiver, value in enumerate(row):
            place = left + receiver * side, top + sender * side
            style = f"fill:var(--s1);fill-opacity:{value / most:.3f};stroke:var(--rule)"
            if count > _MAX_LABELLED:
                style += ";stroke-width:0.2"
            ends = f"{_named(ranks[sender])} to {_named(ranks[receiver])}"
            title = f"{ends}: {write(value)}" if value else ""
            drawn.append(_rect(*place, side, side, style, title))
            if value and count <= 8:
                drawn.append(_cell_text(place, side, write(value), value / most))
    scale = _heat_scale(left, top + whole + 18, most, write)
    return _svg(description, *drawn, *scale, height=top + whole + 58, kind=_CHART)


def _named(ranks: range) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def _cell_text(place: tuple[float, float], side: float, text: str, share: float) -> Html:
    # Dark cells are nearer to the ink than to the ground, of light pages and of dark ones.
    colour = "var(--ground)" if share > 0.75 else "var(--ink)"
    x, y = place[0] + side / 2, place[1] + side / 2 + 5
    style = f"fill:{colour};font-size:{0.17 * side:.0f}px"
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="middle", style=style)


def _heat_scale(left: float, top: float, most: float, write: Callable[[float], str]) -> list[Html]:
    steps = 10
    drawn = [
        _rect(
            left + 24 * step,
            top,
            24,
            12,
            f"fill:var(--s1);fill-opacity:{(step + 0.5) / steps:.2f};stroke:var(--rule)",
            "",
        )
        for step in range(steps)
    ]
    ends = ((left, "0", "start"), (left + 24 * steps, write(most), "end"))
    return [*drawn, *(_text(x, top + 32, text, anchor=anchor) for x, text, anchor in ends)]
