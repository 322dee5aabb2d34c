"""Take the pictures of pages that README and the documentation show, and look for what overflows.

    python docs/screenshots.py build/docs/html docs/pictures

Needs `chromedriver` and Chromium (Debian: chromium-driver), Pillow, and the built documentation.
Reports are made here, from runs on Cora. Each page is opened at the width of a desktop and of a
phone. A page that is wider than its window, or that says something on the console, is an error.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTHS = {"desktop": (1280, 860), "phone": (400, 860)}
"""Width and height of windows in pixels."""
PAGES = {
    "start": "start.html",
    "tutorial": "tutorials/own_graph.html",
    "system": "systems/kfac.html",
}
"""Pages of the documentation, by name of their pictures."""
KEPT = {
    *(f"{name}-{window}" for name in (*PAGES, "report") for window in WIDTHS),
    *("partition-desktop", "runs-desktop", "study-desktop"),
}
"""Pictures that are written; the other pages are only looked at."""
_REPORTS = {
    "report": ("run",),
    "partition": ("parts64",),
    "runs": ("gcn", "gat", "sage"),
    "study": ("study",),
}
_COLOURS = 128
# Elements that are wider than the window and lie in no box that scrolls or hides.
_WIDE = """
const scrolls = e => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
return [...document.querySelectorAll("body *")].filter(e => e.getClientRects().length &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
  !scrolls(e.parentElement)).map(e => e.tagName + " " + e.textContent.trim().slice(0, 60));
"""


def main() -> int:
    """Take all pictures; return 1 if a page is at fault."""
    html, out = (Path(word).resolve() for word in sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = {name: html / page for name, page in PAGES.items()} | make_reports(Path(folder))
        with browser(Path(folder)) as session:
            faults = [
                fault for name, page in pages.items() for fault in look(session, name, page, out)
            ]
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return bool(faults)


def make_reports(folder: Path) -> dict[str, Path]:
    """Train, cut and search, and write a page of each.

    Args:
        folder: Folder for runs and pages.
    """
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**os.environ, **root, "OMP_NUM_THREADS": "1"}
    ranks = "mpirun -n 2 --bind-to none --oversubscribe"
    shared = "--epochs 100 --hidden 16 --feature-norm row --quiet"
    searched = (
        "--model gcn --hidden 16 --trials 6 --scheduler none --search lr=log(0.001,0.1) "
        "--search dropout=uniform(0,0.8)"
    )
    for line in (
        "distgnn partition cora --parts 2 --out parts",
        "distgnn partition cora --parts 64 --out parts64",
        f"{ranks} distgnn train parts --run run --model gcn {shared}",
        f"distgnn train cora --run gcn --model gcn {shared}",
        f"distgnn train cora --run gat --model gat --heads 4 {shared}",
        f"distgnn train cora --run sage --model sage {shared}",
        f"distgnn tune cora --run study {searched} --epochs 30 --quiet",
        *(
            f"distgnn report {' '.join(subjects)} --out {name}.html"
            for name, subjects in _REPORTS.items()
        ),
    ):
        done = subprocess.run(
            line.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{line}\n{done.stdout}{done.stderr}")
    return {name: folder / f"{name}.html" for name in _REPORTS}


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[str]:
    """Start Chromium without a window; yield the address of the session."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
    quiet = (
        "--hide-scrollbars",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    )
    options = {
        "args": [*words, *quiet, f"--user-data-dir={folder / 'profile'}"],
        "w3c": True,
    }
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
    try:
        server = f"http://127.0.0.1:{port}"
        for _ in range(100):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{server}/status")
                break
            time.sleep(0.2)
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        begun = ask(f"{server}/session", capabilities={"alwaysMatch": wanted})
        session = f"{server}/session/{begun['sessionId']}"
        yield session
        ask(session, method="DELETE")
    finally:
        driver.terminate()
        driver.wait()


def ask(address: str, *, method: str = "POST", **body: Any) -> Any:
    """Send a command of WebDriver; return its value.

    Args:
        address: Address of the command.
        method: Method of HTTP.
        **body: Parameters of the command.
    """
    data = json.dumps(body).encode() if method == "POST" else None
    request = urllib.request.Request(
        address, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())["value"]


def look(session: str, name: str, page: Path, out: Path) -> Iterator[str]:
    """Open a page in each window, write its pictures, and yield its faults.

    Args:
        session: Address of the session.
        name: Name of the pictures.
        page: File of the page.
        out: Folder for pictures.
    """

    def tell(command: str, **parameters: Any) -> Any:
        return ask(f"{session}/goog/cdp/execute", cmd=command, params=parameters)

    for window, (width, height) in WIDTHS.items():
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        tell("Emulation.setDeviceMetricsOverride", **size, mobile=False)
        light = [{"name": "prefers-color-scheme", "value": "light"}]
        for media in ("print", "screen"):
            tell("Emulation.setEmulatedMedia", media=media, features=light)
            ask(f"{session}/url", url=page.as_uri())
            wide = ask(f"{session}/execute/sync", script=_WIDE, args=[])
            yield from (f"{name} at {width} px on {media}: {one} is too wide" for one in wide)
        logs = ask(f"{session}/se/log", type="browser")
        yield from (f"{name} at {width} px: {line['message']}" for line in logs)
        if f"{name}-{window}" in KEPT:
            picture = tell("Page.captureScreenshot", format="png", optimizeForSpeed=False)
            keep(base64.b64decode(picture["data"]), out / f"{name}-{window}.png")


def keep(picture: bytes, path: Path) -> None:
    """Write a picture with few colours, as is enough for text and lines.

    Args:
        picture: PNG of any depth.
        path: File to write.
    """
    with Image.open(io.BytesIO(picture)) as full:
        full.convert("RGB").quantize(_COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
