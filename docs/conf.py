"""Settings of Sphinx. `make docs` stages the pages with stage.py and builds them."""

import os
import sys
from pathlib import Path
from typing import Any

import myst_nb.core.render
from docutils import nodes
from sphinx.application import Sphinx

from distgnn import __version__

project = "distgnn"
author = "the authors of distgnn"
release = version = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
root_doc = "index"
html_theme = "furo"
html_title = f"distgnn {__version__}"
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["words.css"]

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 4
# Tables of results begin below a heading of their file, at whatever depth that is.
suppress_warnings = ["myst.header"]

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes"]

# Every cell runs, in a folder of its own; one that fails is a warning, and so an error.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 240
nb_execution_show_tb = True
nb_merge_streams = True
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["OMP_NUM_THREADS"] = "1"
# Open MPI refuses root unless told otherwise, and nothing else does harm here.
os.environ["OMPI_ALLOW_RUN_AS_ROOT"] = os.environ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"


def joined(outputs: list[Any]) -> list[Any]:
    """Join the pieces of each stream of a cell.

    That of MyST-NB puts a line break between pieces, wherever IPython happened to cut them.

    Args:
        outputs: Outputs of the cell, in order.

    Returns:
        The same, with one output a stream: standard output first.
    """
    streams: dict[str, Any] = {}
    others = []
    for output in outputs:
        if output["output_type"] != "stream":
            others.append(output)
        elif output["name"] in streams:
            streams[output["name"]]["text"] += output["text"]
        else:
            streams[output["name"]] = output
    return [*(streams[name] for name in sorted(streams, reverse=True)), *others]


myst_nb.core.render.coalesce_streams = joined


_SHELL = "%%bash\n"


def setup(app: Sphinx) -> None:
    """Let Sphinx show cells of the shell as the lines that a reader types."""
    app.connect("doctree-read", without_magic)


def without_magic(_: Sphinx, page: nodes.document) -> None:
    """Leave out the line that sends a cell to the shell, which a terminal would not take.

    Args:
        page: Page that was read; changed in place.
    """
    for block in page.findall(nodes.literal_block):
        if block.astext().startswith(_SHELL):
            text = block.astext().removeprefix(_SHELL)
            block.rawsource = text  # What differs from the text is not highlighted.
            block.children = []
            block += nodes.Text(text)
            block["language"] = "bash"
