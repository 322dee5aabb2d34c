"""Pages of `distgnn report` in a browser, where playwright and a Chromium are installed."""

from __future__ import annotations

import json
import shutil

import pytest

from distgnn.pages.run import run_page

WIDTHS = (400, 1280)
# Elements that are wider than the window and lie in no box that scrolls.
_WIDE = """() => {
  const scrolls = e => e && (getComputedStyle(e).overflowX === "auto" || scrolls(e.parentElement));
  return [...document.querySelectorAll("body *")].filter(e =>
    e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !scrolls(e)
  ).map(e => e.tagName + " " + e.textContent.slice(0, 60));
}"""

# Headings with nothing below them.
_BARE = """() => [...document.querySelectorAll("section")].filter(e => e.getClientRects().length &&
  ![...e.children].some(c => c.tagName !== "H2" && c.getClientRects().length)
  ).map(e => e.textContent.slice(0, 60))"""
# What Tab has reached: its text, whether it is on the screen, and whether it is marked.
_FOCUSED = """() => {
  const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
  return [e.outerHTML.slice(0, 80), e === document.body,
    box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0,
    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
}"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium is installed")
    with api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def pages(distgnn, here, ring):
    """Files of pages of every kind, of few ranks and of many."""
    for name, hidden in (("a", 4), ("b", 8), ("c", 16)):
        words = ["train", ring, "--run", name, "--hidden", hidden, "--epochs", 12, "--quiet"]
        assert distgnn(*words).status == 0
    for parts, scale in ((2, 6), (64, 10)):
        source = f"synthetic:rmat,scale={scale}"
        words = ["partition", source, "--parts", parts, "--method", "random", "--out", f"p{parts}"]
        assert distgnn(*words).status == 0
    space = ("--search", "lr=choice(0.01,0.1)", "--trials", 2, "--scheduler", "none")
    tuned = distgnn("tune", ring, "--run", "study", "--epochs", 4, "--quiet", *space)
    assert tuned.status == 0
    commands = {
        "run": ["a"],
        "three runs": ["a", "b", "c"],
        "study": ["study"],
        "2 parts": ["p2"],
        "64 parts": ["p64"],
    }
    for name, words in commands.items():
        assert distgnn("report", *words, "--out", here / f"{name}.html").status == 0
    config = {**json.loads((here / "a/config.json").read_text()), "num_ranks": 64}
    records = [json.loads(line) for line in (here / "a/metrics.jsonl").read_text().splitlines()]
    summary = json.loads((here / "a/summary.json").read_text())
    summary["peak_rss_bytes"] = [2**30 + rank * 2**20 for rank in range(64)]
    text = run_page(config, records, summary)
    (here / "64 ranks.html").write_text(text, encoding="utf-8")
    return sorted(here.glob("*.html"))


@pytest.mark.timeout(300)
def test_pages_fit_phones_and_say_nothing_on_the_console(browser, pages):
    assert len(pages) == 6
    for path in pages:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            said: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.goto(path.as_uri())
            where = f"{path.name} at {width} px"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            assert page.evaluate(_WIDE) == [], where
            page.emulate_media(media="print")  # what is folded stays off the paper
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            assert page.evaluate(_BARE) == [], where
            page.emulate_media(media="screen")
            folded = page.locator("details")
            if folded.count():  # the keyboard opens what is folded
                folded.first.locator("summary").focus()
                page.keyboard.press("Enter")
                assert folded.first.get_attribute("open") is not None, where
                assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            page.goto(path.as_uri())  # from the top, Tab reaches all that can be opened or scrolled
            wanted = page.locator("a[href], summary, [tabindex='0']").count()
            for _ in range(wanted):
                page.keyboard.press("Tab")
                text, is_nowhere, is_seen, is_marked = page.evaluate(_FOCUSED)
                assert (is_nowhere, is_seen, is_marked) == (False, True, True), (where, text)
            assert said == [], where
            page.close()
