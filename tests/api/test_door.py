"""The package itself: what it names, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import distgnn
import distgnn.datasets


def test_every_public_name_is_there_and_listed():
    assert set(distgnn.__all__) <= set(dir(distgnn))
    for name in distgnn.__all__:
        value = getattr(distgnn, name)
        assert value.__doc__, name
        assert getattr(distgnn, name) is value


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'distgnn' has no attribute 'trian'"):
        _ = distgnn.trian  # type: ignore[attr-defined]


def test_importing_the_package_loads_neither_torch_nor_numpy():
    program = "import distgnn, sys; print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_first_name_prepares_the_environment_unless_the_user_has_chosen():
    program = (
        "import os, distgnn; before = 'THP_MEM_ALLOC_ENABLE' in os.environ; distgnn.InputError; "
        "print(before, os.environ['THP_MEM_ALLOC_ENABLE'], os.environ['OMP_WAIT_POLICY'])"
    )
    names = ("THP_MEM_ALLOC_ENABLE", "GOMP_SPINCOUNT")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "OMP_WAIT_POLICY": "active"},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert done.stdout.split() == ["False", "1", "active"]


def test_names_of_data_sets_are_listed_before_they_are_loaded():
    assert dir(distgnn.datasets) == sorted(distgnn.datasets.__all__)
