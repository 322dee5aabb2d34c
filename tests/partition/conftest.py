"""Fixtures for tests of partition directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_parts import example, save


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A partition directory of a small graph."""
    save(tmp_path / "parts", example())
    return tmp_path / "parts"
