"""Hostile strings through every value of every template: the script runs, the value arrives, nothing else happens."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from render_support import FAKE_PYTHON, PROGRAMS_OF_COPY, RECORDER, hostile, program, recorded, run_script, script_env

from orchestrator.render.checkout import render_git_checkout
from orchestrator.render.mounts import MountInputs, render_copy_mount
from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

BACKENDS: tuple[Backend, ...] = ("cpu", "cuda", "xla", "neuron", "jax", "tpu")
examples = settings(max_examples=25, deadline=None)


@contextmanager
def host() -> Generator[Path]:
    """A home folder of a host; on leaving, the canary must not be there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder / "home"
        assert not (folder / "canary").exists(), "a value was run as a command"


def env(home: Path, **more: str) -> dict[str, str]:
    return {**script_env(home.parent), "ORCH_RANKS_PER_HOST": "1", **more}


@examples
@given(
    st.sampled_from(BACKENDS),
    hostile(),
    st.lists(st.tuples(hostile(slash=True), hostile(slash=True)), max_size=3),
    hostile(),
)
def test_run_of_the_trainer(backend: Backend, python: str, args: list[tuple[str, str]], workdir: str) -> None:
    with host() as home:
        looks = RECORDER.replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" != -c ] || exit 0\n')
        interpreter = program(home.parent / python / "python", looks + 'printf "%s\\0" "$PWD" >"$RECORD.pwd"\n')
        (home / workdir).mkdir(parents=True)
        text = render_run(
            RunInputs(backend=backend, trainer_args=tuple(args), python=str(interpreter), workdir=workdir)
        )
        done = run_script(text, home, env(home))
        assert (done.returncode, done.stderr) == (0, "")
        words = [f"{key}={value}" for key, value in args]
        got = recorded(home.parent / "record")
        assert got[:2] == ["-m", "trainer"]
        assert got[2].startswith("engine=") and got[3].startswith("device=")
        assert got[4:] == words
        assert recorded(home.parent / "record.pwd") == [str(home / workdir)]


@examples
@given(st.sampled_from(BACKENDS), hostile())
def test_run_of_a_program(backend: Backend, workdir: str) -> None:
    with host() as home:
        (home / workdir).mkdir(parents=True)
        text = render_run(RunInputs(backend=backend, user_run='printf "%s\\0" "$PWD" >"$RECORD"', workdir=workdir))
        done = run_script(text, home, env(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert recorded(home.parent / "record") == [str(home / workdir)]


@examples
@given(st.lists(hostile(), max_size=3))
def test_names_of_variables_that_a_start_file_does_not_change(names: list[str]) -> None:
    with host() as home:
        home.mkdir()
        (home / ".bashrc").write_text("export AFTER=1\n")
        inputs = RunInputs(backend="cpu", user_run='printf "%s\\0" "$AFTER" >"$RECORD"', fixed=tuple(names))
        done = run_script(render_run(inputs), home, env(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert recorded(home.parent / "record") == ["1"]


@examples
@given(st.sampled_from(BACKENDS), st.lists(hostile(slash=True), min_size=1, max_size=3), hostile())
def test_setup_with_packages(backend: Backend, packages: list[str], workdir: str) -> None:
    with host() as home:
        python = program(home.parent / "bin" / "python3", FAKE_PYTHON)
        (home / workdir).mkdir(parents=True)
        inputs = SetupInputs(
            backend=backend,
            user_setup='printf "%s\\0" "$PWD" >>"$RECORD"',
            packages=tuple(packages),
            workdir=workdir,
        )
        more = {"ORCH_PYTHON": str(python)} if backend == "neuron" else {}
        (home / ".orch" / "site").mkdir(parents=True)
        text = (render_setup(inputs) or "").replace('rm -rf -- "$site"', "")  # the false pip makes no folder
        done = run_script(text, home, env(home, **more), path=str(python.parent))
        assert (done.returncode, done.stderr) == (0, "")
        got = recorded(home.parent / "record")
        assert got[:3] == ["-m", "pip", "install"]
        assert got[got.index("--") + 1 :] == [*packages, str(home / workdir)]


@examples
@given(st.sampled_from(BACKENDS), hostile())
def test_setup_with_an_interpreter(backend: Backend, python: str) -> None:
    with host() as home:
        interpreter = program(
            home.parent / python / "python", RECORDER.replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" != -c ] || exit 0\n')
        )
        program(home / ".orch/host/trainer/trainer/__main__.py", "")
        (home / ".orch" / "site").mkdir(parents=True)
        inputs = SetupInputs(backend=backend, bundled_trainer=True, python=str(interpreter))
        text = (render_setup(inputs) or "").replace('rm -rf -- "$site"', "")
        done = run_script(text, home, env(home))
        assert (done.returncode, done.stderr) == (0, "")
        got = recorded(home.parent / "record")
        assert got[-5:-2] == ["-m", "trainer", "check"]
        assert got[-2].startswith("engine=") and got[-1].startswith("device=")


@examples
@given(hostile(), hostile(), st.booleans())
def test_copy_from_a_file_bucket(source: str, destination: str, absolute: bool) -> None:
    with host() as home:
        (home.parent / source).mkdir()
        (home.parent / source / "a b").write_text("content")
        text = render_copy_mount(
            MountInputs(f"file://{home.parent / source}", f"{home}/{destination}" if absolute else f"~/{destination}")
        )
        done = run_script(text, home, env(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert (home / destination / "a b").read_text() == "content"


@examples
@given(hostile(slash=True), hostile(), st.booleans())
def test_copy_from_s3(key: str, destination: str, is_object: bool) -> None:
    with host() as home:
        # The recorder replaces `aws`; head-object answers yes or no.
        head = '[ "$2" != head-object ] || exit 1\n' if not is_object else ""
        program(home.parent / "bin" / "aws", RECORDER + head + '[ "$2" != sync ] || touch "$HOME/$TARGET/x"\n')
        text = render_copy_mount(MountInputs(f"s3://bucket/{key}", f"~/{destination}"))
        done = run_script(text, home, env(home, TARGET=destination), path=str(home.parent / "bin"))
        assert (done.returncode, done.stderr) == (0, "")
        got = recorded(home.parent / "record")
        assert got[-2:] == [f"s3://bucket/{key}", str(home / destination)]
        if not key.endswith("/"):
            assert got[:6] == ["s3api", "head-object", "--bucket", "bucket", "--key", key]


@examples
@given(
    hostile(slash=True).filter(lambda key: not set(key) & set("*?[")), hostile(), st.sampled_from(["gcloud", "gsutil"])
)
def test_copy_from_google(key: str, destination: str, tool: str) -> None:
    with host() as home:
        program(home.parent / "bin" / tool, RECORDER)
        for name in PROGRAMS_OF_COPY:
            (home.parent / "bin" / name).symlink_to(f"/usr/bin/{name}")
        (home.parent / "bin" / "sh").symlink_to("/bin/sh")
        text = render_copy_mount(MountInputs(f"gs://bucket/{key}", f"~/{destination}"))
        (home / destination).mkdir(parents=True)
        (home / destination / "x").touch()
        done = run_script(text, home, env(home, PATH=str(home.parent / "bin")))
        assert (done.returncode, done.stderr) == (0, "")
        assert recorded(home.parent / "record")[-2:] == [f"gs://bucket/{key}", str(home / destination)]


@examples
@given(
    hostile(slash=True).filter(lambda url: not url.startswith("-")),
    hostile(slash=True).filter(lambda ref: not ref.startswith("-")),
    hostile(),
)
def test_git_checkout(url: str, ref: str, destination: str) -> None:
    with host() as home:
        git = program(home.parent / "bin" / "git", RECORDER)
        done = run_script(render_git_checkout(url, ref, destination), home, env(home), path=str(git.parent))
        assert (done.returncode, done.stderr) == (0, "")
        got = recorded(home.parent / "record")
        assert got[:4] == ["init", "--quiet", "--", str(home / destination)]
        assert got[got.index("fetch") + 4 :][:3] == ["--", url, ref]


@pytest.mark.parametrize("backend", BACKENDS)
def test_program_of_the_user_is_run_unchanged(backend: Backend, tmp_path: Path) -> None:
    program_text = (
        "printf '%s' \"it's $((6 * 7)) \\\"x\\\" {{ 7 }} {% raw %}\" \\\n  | cat\ncat <<'EOF'\n`no` $(no)\nEOF\n# end"
    )
    text = render_run(RunInputs(backend=backend, user_run=program_text))
    done = run_script(text, tmp_path / "home", env(tmp_path / "home"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'it\'s 42 "x" {{ 7 }} {% raw %}`no` $(no)\n'
