"""What pip installs for the trainer: the locked files by their digests, from an index on disk that may have others."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from render_support import HOST, TRAINER_ROOT, program, run_script, write_wheel

from orchestrator.catalog import tables
from orchestrator.render.packages import Backend, stack_name
from orchestrator.render.scripts import SetupInputs, render_setup

NAMES = {"torch": "2.13.0", "numpy": "2.4.0", "obstore": "0.12.1", "leaf": "1.0"}  # obstore needs leaf


class Index:
    """A package index on disk, the catalogue of its digests, and a host that installs from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels, self.home = folder, folder / "index", folder / "home"
        self.wheels.mkdir()
        rows = [
            '[[stack]]\nname = "torch"\nframework = ["torch==2.13.0"]\nlibraries = ["obstore==0.12.1"]\n',
            '[[stack]]\nname = "beside"\nframework = []\nlibraries = ["obstore==0.12.1"]\n',
        ]
        for name, version in NAMES.items():
            digest = hashlib.sha256(self.put(name).read_bytes()).hexdigest()
            stacks = '["torch", "beside"]' if name in ("obstore", "leaf") else '["torch"]'
            rows.append(
                f'[[package]]\nname = "{name}"\nversion = "{version}"\nmarker = ""\nstacks = {stacks}\n'
                f'sha256 = ["{digest}"]\n'
            )
        (folder / "data").mkdir()
        (folder / "data/installs.toml").write_text("\n".join(rows))
        program(self.home / f"{TRAINER_ROOT}/trainer/__main__.py", "print('trainer')\n")
        (folder / "bin").mkdir()
        (folder / "bin/python3").symlink_to(Path(os.path.realpath(sys.executable)))

    def put(self, name: str, text: str = "") -> Path:
        needs = "leaf" if name == "obstore" else ""
        return write_wheel(self.wheels, name, NAMES[name], needs=needs, text=text)

    def set_up(self, backend: Backend = "cpu", *, unlocked: str = "", **more: object) -> tuple[int, str]:
        """Return the status and the output of the setup of a trainer."""
        text = render_setup(SetupInputs(backend=backend, bundled_trainer=True, **more))  # type: ignore[arg-type]  # the test names the fields
        assert text is not None
        env = {**HOST, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_NO_CACHE_DIR": "1"}
        env["ORCH_UNLOCKED_PACKAGES"] = unlocked
        if backend == "neuron":
            env["ORCH_PYTHON"] = sys.executable
        done = run_script(text, self.home, env, path=str(self.folder / "bin"))
        return done.returncode, done.stdout + done.stderr

    def installed(self, name: str) -> list[str]:
        """Return the text of a module wherever it is installed."""
        return [path.read_text() for path in self.home.glob(f".orch/**/{name}.py")]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    made = Index(tmp_path)
    monkeypatch.setattr(tables, "DATA", tmp_path / "data")
    tables.read_rows.cache_clear()
    yield made
    tables.read_rows.cache_clear()


@pytest.mark.slow
def test_locked_files_are_installed_once_and_followed_by_those_of_the_task(index: Index) -> None:
    status, out = index.set_up()
    assert (status, out) == (0, "setup: installing torch==2.13.0 obstore==0.12.1\ntrainer\n")
    assert {name: len(index.installed(name)) for name in NAMES} == dict.fromkeys(NAMES, 1)
    assert index.set_up() == (0, "trainer\n")

    write_wheel(index.wheels, "tiny", "1.0", needs="leaf>=1")
    assert index.set_up(packages=("tiny",))[0] == 0
    assert index.installed("tiny") != []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "leaf"])
def test_another_file_of_the_same_version_is_refused(index: Index, name: str) -> None:
    place = index.wheels / f"{name}-{NAMES[name]}-py3-none-any.whl"
    right = place.read_bytes()
    index.put(name, text="stolen = True\n")
    status, out = index.set_up(user_setup="touch reached")
    assert status == 1
    assert "DO NOT MATCH THE HASHES" in out
    assert "setup: the packages could not be installed\n  next: read the lines above" in out
    assert "whose files must be the same" in out
    assert [index.installed(one) for one in NAMES] == [[], [], [], []]
    assert not (index.home / "reached").exists()
    place.write_bytes(right)
    assert index.set_up()[0] == 0


@pytest.mark.slow
def test_beside_an_image_another_file_is_refused_too(index: Index) -> None:
    right = (index.wheels / "leaf-1.0-py3-none-any.whl").read_bytes()
    index.put("leaf", text="stolen = True\n")
    status, out = index.set_up("neuron")
    assert status == 1 and "DO NOT MATCH THE HASHES" in out
    assert index.installed("leaf") == []
    (index.wheels / "leaf-1.0-py3-none-any.whl").write_bytes(right)
    write_wheel(index.wheels, "tiny", "1.0", needs="leaf>=1")
    status, out = index.set_up("neuron", packages=("tiny==1.0",))
    assert "setup: installing obstore==0.12.1 tiny==1.0" in out
    assert "could not be installed" not in out
    assert all(len(index.installed(one)) == 1 for one in ("obstore", "leaf", "tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "neuron"])
def test_a_task_may_take_other_files_of_the_same_versions(index: Index, backend: Backend) -> None:
    """As the CPU build of torch is, which has no CUDA packages: only what it asks for is installed."""
    index.put("obstore", text="other = True\n")
    _, out = index.set_up(backend, unlocked="1")
    assert "could not be installed" not in out
    assert [text for text in index.installed("obstore") if "other" in text] != []
    assert index.installed("numpy") == []  # no requirement of these stacks
    index.put("obstore", text="third = True\n")
    assert "DO NOT MATCH THE HASHES" in index.set_up(backend)[1]


def test_every_backend_has_its_locked_packages() -> None:
    tables.read_rows.cache_clear()
    for backend in get_args(Backend):
        for device in ("", "cpu", "tpu", "cuda", "neuron"):
            name = stack_name(backend, device)
            text = render_setup(SetupInputs(backend=backend, bundled_trainer=True, device=device))
            assert text is not None
            assert "--require-hashes" in text and "obstore==0.12.1 --hash=sha256:" in text, name
