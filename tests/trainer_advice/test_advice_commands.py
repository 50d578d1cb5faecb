"""`trainer advise`, `compile`, `rehearse-world` as typed: missing arguments are named; no framework is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
V5E = '{"name": "v5e-16", "kind": "tpu", "chip": "v5e", "devices": 16, "hosts": 4, "memory_bytes": 17179869184}'
WITHOUT_FRAMEWORKS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from trainer.__main__ import main

sys.exit(main(sys.argv[1:]))
"""


def trainer(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_FRAMEWORKS, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_advice_needs_no_framework() -> None:
    done = trainer("advise", "--hardware", f"[{V5E}, {V5E}]", "--json", "model=1b", "batch=16", "dtype=bf16")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first == second and first["engine"] == "jax" and first["mesh"]["fsdp"] == 16


def test_peak_and_memory_are_known_by_the_name_of_the_chip_and_what_is_given_goes_before_them() -> None:
    named = '{"name": "a", "kind": "cuda", "chip": "H100", "devices": 8}'
    given = '{"name": "b", "kind": "cuda", "chip": "H100", "devices": 8, "peak_flops": 1e15, "memory_bytes": null}'
    done = trainer("advise", "--hardware", f"[{named}, {given}]", "--json", "model=1b", "batch=64")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first["hardware"]["peak_flops"] == 989e12 and first["fits"] is True and first["timing"]["mfu"]
    assert second["hardware"]["peak_flops"] == 1e15 and second["fits"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("advise", "model=1b"), "which machines"),
        (("advise", "--hardware", V5E, "batch=10"), "on v5e-16: batch=10 does not divide"),
        (("advise", "--hardware", V5E, "modle=1b"), "did you mean model"),
        (("compile", "model=1b"), "topology=v5e:4x4"),
        (("compile", "topology=v5e:4x4", "slices=0"), "slices=0"),
        (("compile", "topology=v5e:4x4", "engine=torch"), "only the JAX engine"),
        (("rehearse-world", "model=1b"), "hosts=64 devices=8"),
        (("rehearse-world", "hosts=x"), "hosts=x"),
        (("rehearse-world", "hosts=2", "batch=3"), "batch=3 does not divide"),
        (("rehearse-world", "hosts=2", "engine=jax"), "trainer compile"),
        (("rehearse-world", "hosts=2", "engine=torch", "device=xla"), "one program for all devices"),
        (("rehearse-world", "hosts=2", "batch=4"), "needs torch"),
    ],
)
def test_missing_or_wrong_argument_is_named(words: tuple[str, ...], said: str) -> None:
    done = trainer(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
