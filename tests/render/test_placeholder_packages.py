"""No script of ours installs AWS's Neuron packages by name: those of the public index are empty placeholders.

Seen there in November 2026: the install succeeds, and only the import says that it was the wrong package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from render_support import TEMPLATES

from orchestrator.render.packages import Backend, backend_packages, trainer_packages
from orchestrator.render.scripts import SetupInputs, render_setup

PLACEHOLDERS = frozenset({"torch-neuronx", "neuronx-cc", "neuronx-distributed", "libneuronxla", "jax-neuronx", "nki"})
_INSTALLS = re.compile(
    r"\bpip3?\b.*\binstall\b|\buv\b.*\b(?:pip|add|sync)\b|\bconda\b.*\binstall\b|orch_packages=\(", re.DOTALL
)
_TEMPLATES = sorted(path for path in TEMPLATES.rglob("*") if path.is_file())
_SETUPS = [
    (backend, neuron, bundled) for backend in get_args(Backend) for neuron in (False, True) for bundled in (False, True)
]


def installed(script: str) -> set[str]:
    """Placeholders among the words of commands and lists that install something, as PEP 503 writes names."""
    return {name for command in commands(script) if _INSTALLS.search(command) for name in names(command)} & PLACEHOLDERS


def commands(script: str) -> Iterator[str]:
    """Lines without their comments, with their continuation lines."""
    yield from re.sub(r"(?m)(?:^|\s)#.*$", "", script).replace("\\\n", " ").splitlines()


def names(command: str) -> set[str]:
    return {re.sub(r"[-_.]+", "-", word).lower() for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9_.-]*", command)}


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda path: str(Path(path).relative_to(TEMPLATES)))
def test_no_template_installs_a_placeholder(template: Path) -> None:
    assert installed(template.read_text()) == set()


@pytest.mark.parametrize(("backend", "neuron", "bundled"), _SETUPS)
def test_no_setup_installs_a_placeholder(backend: Backend, neuron: bool, bundled: bool) -> None:
    inputs = SetupInputs(backend=backend, user_setup="true", bundled_trainer=bundled, neuron=neuron)
    script = render_setup(inputs)
    assert script is not None
    assert installed(script) == set()


@pytest.mark.parametrize("backend", get_args(Backend))
def test_no_requirement_of_ours_is_a_placeholder(backend: Backend) -> None:
    for requirement in (*backend_packages(backend), *trainer_packages(backend)):
        assert not names(requirement) & PLACEHOLDERS


@pytest.mark.parametrize(
    "line",
    [
        "pip install torch-neuronx",
        'python -m pip install \\\n  --quiet \\\n  "Torch_NeuronX==2.9.*"',
        "uv pip install neuronx_cc nki",
        "orch_packages=( jax 'jax-neuronx' )",
        "pip3 install torch --extra-index-url https://pip.repos.neuron.amazonaws.com libneuronxla",
    ],
)
def test_such_a_line_would_be_seen(line: str) -> None:
    assert installed(f"set -e\n{line}\n")


@pytest.mark.parametrize(
    "line", ["# pip install torch-neuronx", "python -c 'import torch_neuronx'", "pip install torch"]
)
def test_others_are_not_taken_for_one(line: str) -> None:
    assert installed(line) == set()
