"""Drawings show the numbers that they were given, whatever the numbers."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distgnn.machine.units import human_bytes
from distgnn.pages import charts
from distgnn.pages.markup import escaped, page, table, tag
from distgnn.pages.text import human_count, human_seconds

SVG = "{http://www.w3.org/2000/svg}"
SIZES = st.floats(0, 1e12, allow_nan=False)


def drawn(svg):
    """The parsed drawing; it is well-formed and says what it shows."""
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.find(f"{SVG}title").text
    return root


def titled(root):
    """(title, rectangle) of all that have one."""
    return [
        (group.find(f"{SVG}title").text, group.find(f"{SVG}rect"))
        for group in root.iter(f"{SVG}g")
        if group.find(f"{SVG}rect") is not None
    ]


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def test_columns_are_as_high_as_their_values():
    root = drawn(charts.columns([1, 4, 2], name="edges", description="d", write=human_count))
    shown = titled(root)
    assert [title for title, _ in shown] == ["rank 0: 1", "rank 1: 4", "rank 2: 2"]
    heights = [float(rect.get("height")) for _, rect in shown]
    assert heights[1] == pytest.approx(4 * heights[0], abs=0.1)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.1)
    assert "mean 2.333" in texts(root)


@given(st.lists(SIZES, min_size=1, max_size=300))
def test_columns_of_any_values_stay_inside(values):
    root = drawn(charts.columns(values, name="x", description="d", write=human_bytes))
    for _, rect in titled(root):
        x, y, width, height = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert 0 <= x <= x + width <= 640
        assert 0 <= y <= y + height + 0.01 <= 260
        assert height >= 0


def test_cells_are_as_dark_as_their_values_and_small_maps_are_labelled():
    cells = [[0, 512], [2048, 0]]
    root = drawn(charts.heat_map(cells, description="d", write=human_bytes))
    shown = dict(titled(root))
    opacity = {
        title: float(re.search(r"fill-opacity:([\d.]+)", rect.get("style"))[1])
        for title, rect in shown.items()
    }
    assert opacity == {"0 to 1: 512 B": 0.25, "1 to 0: 2.0 KiB": 1.0}
    assert texts(root).count("512 B") == 1
    assert texts(root).count("2.0 KiB") == 2  # in the cell and at the end of the scale
    assert float(shown["1 to 0: 2.0 KiB"].get("y")) > float(shown["0 to 1: 512 B"].get("y"))


@pytest.mark.parametrize("count", [1, 9, 17, 96])
def test_maps_of_many_ranks_label_some_of_them(count):
    cells = [[abs(p - q) for q in range(count)] for p in range(count)]
    root = drawn(charts.heat_map(cells, description="d", write=human_count))
    assert len(titled(root)) == count * (count - 1)
    assert len(texts(root)) <= 2 * 16 + 8


def test_a_curve_goes_through_its_points():
    series = {"a": [(0, 1.0), (1, 2.0), (2, 1.5)], "b": [(0, 3.0)]}
    root = drawn(charts.lines(series, labels=("x", "y"), description="d", write=human_count))
    (curve,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points").split()]
    assert [x for x, _ in points[:3]] == sorted({x for x, _ in points})
    assert points[1][1] < points[2][1] < points[0][1]  # the highest value is at the top
    assert {"a", "b", "x", "y"} <= set(texts(root))


def test_long_curves_are_thinned_and_keep_their_end():
    series = {"a": [(k, float(k)) for k in range(10_000)]}
    root = drawn(charts.lines(series, labels=("x", "y"), description="d", write=human_count))
    (curve,) = root.iter(f"{SVG}polyline")
    assert len(curve.get("points").split()) <= 602
    assert curve.get("points").split()[-1].startswith("616.0,")


@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=50), st.booleans())
def test_curves_of_any_values_stay_inside(values, from_zero):
    if from_zero:
        values = [abs(value) for value in values]
    svg = charts.lines(
        {"a": list(enumerate(values))},
        labels=("x", "y"),
        description="d",
        write=human_count,
        from_zero=from_zero,
    )
    for curve in drawn(svg).iter(f"{SVG}polyline"):
        for point in curve.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 640
            assert 0 <= y <= 260


def test_layers_are_stacked_without_gaps():
    layers = {"low": [1.0, 2.0], "high": [3.0, 0.0]}
    svg = charts.stack(layers, labels=("epoch", "s"), description="d", write=human_seconds)
    shown = titled(drawn(svg))
    low, _, high, _ = (rect for _, rect in shown)
    assert float(high.get("y")) + float(high.get("height")) == pytest.approx(float(low.get("y")))
    assert float(high.get("height")) == pytest.approx(3 * float(low.get("height")), abs=0.1)
    assert shown[2][0] == "high, epoch 0: 3 s"


def test_many_columns_of_a_stack_become_means():
    layers = {"a": [float(k % 2) for k in range(1000)]}
    svg = charts.stack(layers, labels=("epoch", "s"), description="d", write=human_seconds)
    shown = titled(drawn(svg))
    assert len(shown) == math.ceil(1000 / 9)
    assert max(float(rect.get("height")) for _, rect in shown) > 0


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@example(0.0, 5e-324)
def test_ticks_are_few_round_and_inside(low, span):
    found = charts.ticks(low, low + span)
    assert len(found) <= 7
    assert found == sorted(found)
    slack = 1e-6 * (abs(low) + span + 1)
    assert all(low - slack <= value <= low + span + slack for value in found)


def test_bytes_have_round_ticks_in_their_unit():
    svg = charts.columns([300 * 1024], name="x", description="d", write=human_bytes)
    assert {"0 B", "100.0 KiB", "200.0 KiB", "300.0 KiB"} <= set(texts(drawn(svg)))


def test_text_is_never_markup():
    evil = '<script>alert("x")</script>&\x00\ud800'
    element = ElementTree.fromstring(tag("p", evil, title=evil, class_="a"))
    assert element.text == element.get("title") == '<script>alert("x")</script>&\ufffd\ufffd'
    assert element.get("class") == "a"
    assert "<script" not in page(evil, table([evil], [(evil, evil)], caption=evil))
    assert escaped(tag("b", "x")) == "<b>x</b>"


def luminance(colour):
    digits = colour.lstrip("#")
    digits = "".join(2 * c for c in digits) if len(digits) == 3 else digits
    channels = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_can_be_told_from_the_ground_in_light_and_dark(mode):
    themes = re.findall(r":root \{(.*?)\}", page("x"), re.S)
    colours = dict(re.findall(r"--(\w+): (#\w+)", themes[mode]))
    assert len(colours) == 9
    for name, least in {"ink": 7, "soft": 4.5, **{f"s{k}": 3 for k in range(1, 6)}}.items():
        light, dark = sorted((luminance(colours[k]) for k in (name, "ground")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= least, name


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (human_bytes, 1536, "1.5 KiB"),
        (human_bytes, 5 * 2**40, "5.0 TiB"),
        (human_count, 1234567, "1 234 567"),
        (human_count, 0.12345, "0.1235"),
        (human_seconds, 0.0123, "12.3 ms"),
        (human_seconds, 2e-6, "2 us"),
        (human_seconds, 90.0, "90 s"),
        (human_seconds, 1000.0, "16.7 min"),
        (human_seconds, 9000.0, "2.5 h"),
    ],
)
def test_numbers_are_short(write, value, text):
    assert write(value) == text


def test_the_end_of_a_long_name_stands_over_its_bar_and_all_of_it_in_its_title():
    name = f"run-{'x' * 60}-seed-7"
    shown = str(charts.bars({name: 2.0}, description="seconds", write=str))
    assert f">...{name[-47:]}<" in shown
    assert f"{name}: 2.0" in shown
