"""Setup: what it does, what it leaves alone, and how it says that it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast, get_args

import pytest
from render_support import FAKE_PYTHON, HOST, TRAINER_ROOT, program, recorded, run_script, write_wheel

from orchestrator.render.packages import Backend, backend_packages, trainer_packages
from orchestrator.render.scripts import SetupInputs, render_setup

CHECKOUT = Path(__file__).resolve().parents[2]


def setup_of(backend: Backend = "cpu", **more: object) -> str:
    text = render_setup(SetupInputs(backend=backend, **more))  # type: ignore[arg-type]  # the test names the fields
    assert text is not None
    return text


@pytest.fixture
def real_python(tmp_path: Path) -> str:
    """A folder in which `python3` is this interpreter, without what is installed beside it."""
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "python3").symlink_to(Path(os.path.realpath(sys.executable)))
    return str(folder)


@pytest.fixture
def index(tmp_path: Path) -> dict[str, str]:
    """A package index on disk with one package, `tiny`, and no way to any other."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        write_wheel(folder, "tiny", version)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_NO_CACHE_DIR": "1"}


@pytest.mark.parametrize("user_setup", [None, "", " \n\t\n"])
@pytest.mark.parametrize("python", ["", "/usr/bin/python3"])
def test_nothing_to_do_is_no_script(user_setup: str | None, python: str) -> None:
    assert render_setup(SetupInputs(backend="cpu", user_setup=user_setup, python=python, workdir="w")) is None


@pytest.mark.slow
def test_the_environment_is_made_once_and_follows_its_packages(
    tmp_path: Path, real_python: str, index: dict[str, str]
) -> None:
    home = tmp_path / "home"
    ask = "python -c 'import tiny; print(tiny.version)'\ncommand -v python"
    first = run_script(setup_of(packages=("tiny==1.0",), user_setup=ask), home, index, path=real_python)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == ["setup: installing tiny==1.0", "1.0", f"{home}/.orch/venv/bin/python"]

    (home / ".orch/venv/kept").touch()
    again = run_script(setup_of(packages=("tiny==1.0",), user_setup=ask), home, {"PIP_NO_INDEX": "1"}, path=real_python)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "1.0")

    newer = run_script(setup_of(packages=("tiny==2.0",), user_setup=ask), home, index, path=real_python)
    assert newer.stdout.splitlines()[:2] == ["setup: installing tiny==2.0", "2.0"]
    assert (home / ".orch/venv/kept").exists()


@pytest.mark.slow
def test_an_environment_that_was_half_made_is_made_again(
    tmp_path: Path, real_python: str, index: dict[str, str]
) -> None:
    home = tmp_path / "home"
    program(home / ".orch/venv/bin/python", "#!/nowhere/python\n")
    (home / ".orch/venv/.orch-packages").write_text("tiny==1.0\n")
    done = run_script(
        setup_of(packages=("tiny==1.0",), user_setup="python -c 'import tiny'"), home, index, path=real_python
    )
    assert done.returncode == 0, done.stderr


def test_an_environment_is_made_again_when_what_is_in_it_could_be_broken(tmp_path: Path) -> None:
    """Killed while pip worked, or with a package that is not requested now; else pip continues in place."""
    pip = """'-m venv') echo >>"$HOME/made"; rm -rf "$4"; mkdir -p"""
    fake = FAKE_PYTHON.replace("'-m venv') mkdir -p", pip).replace(
        "*) printf", '*) [ -z "$KILL" ] || kill -KILL $PPID; [ -z "$FAIL" ] || exit 1; printf'
    )
    program(tmp_path / "bin" / "python3", fake)

    def environments(*packages: str, **env: str) -> tuple[int, int]:
        """Exit status of setup, and how many environments were made up to now."""
        env |= {"RECORD": str(tmp_path / "record")}
        done = run_script(setup_of(packages=packages), tmp_path / "home", env, path=str(tmp_path / "bin"))
        return done.returncode, len((tmp_path / "home" / "made").read_text().splitlines())

    assert environments("torch==2.13.0", "torch_tpu==0.2.0") == (0, 1)
    assert environments("torch==2.13.0", "torch_tpu==0.2.1", "jax[tpu]>=1") == (0, 1)
    assert environments("torch==2.9.0", "jax[tpu]>=1") == (0, 2)
    assert environments("torch==2.9.1", "jax[tpu]>=1", FAIL="1") == (1, 2)
    before = len(recorded(tmp_path / "record"))
    assert environments("torch==2.9.0", "jax[tpu]>=1") == (0, 2)
    assert len(recorded(tmp_path / "record")) > before  # what failed is not taken for what was there before it
    assert environments("torch==2.9.1", "jax[tpu]>=1", KILL="1") == (-9, 2)
    assert environments("torch==2.9.0", "jax[tpu]>=1") == (0, 3)
    assert environments("torch==2.9.0", "jax[tpu]>=1", FAIL="1") == (0, 3)  # nothing to do


@pytest.mark.slow
def test_a_failed_install_stops_before_the_setup_of_the_task_and_is_tried_again(
    tmp_path: Path, real_python: str, index: dict[str, str]
) -> None:
    home = tmp_path / "home"
    text = setup_of(packages=("absent==1.0",), user_setup="touch reached")
    for _ in range(2):
        done = run_script(text, home, index, path=real_python)
        assert done.returncode == 1
        assert "No matching distribution found for absent==1.0" in done.stderr
        assert "setup: the packages could not be installed\n  next: " in done.stderr
        assert not (home / "reached").exists()


def test_pip_that_fails_once_does_not_end_the_launch(tmp_path: Path) -> None:
    fails_once = FAKE_PYTHON.replace("*) printf", '*) mkdir "$HOME/failed" 2>/dev/null && exit 1; printf')
    program(tmp_path / "bin" / "python3", fails_once)
    env = {"RECORD": str(tmp_path / "record")}
    done = run_script(setup_of(packages=("x",)), tmp_path / "home", env, path=str(tmp_path / "bin"))
    assert (done.returncode, done.stderr) == (0, "setup: pip failed, and is tried once more\n")
    assert recorded(tmp_path / "record")[-1] == "x"


def test_the_error_of_an_own_machine_without_python_names_what_to_install(tmp_path: Path) -> None:
    without = FAKE_PYTHON.replace("'-c '*)", "'-c \nimport ensurepip,'*) exit 1 ;;\n  '-c '*)")
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        program(tmp_path / "bin" / name, without)
    done = run_script(setup_of(packages=("x",)), tmp_path / "home", path=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert "setup: no finished Python 3.11, 3.12 or 3.13 with its module venv is here" in done.stderr
    assert "next: sudo apt-get install python3-venv, or set ORCH_PYTHON in envs" in done.stderr


def test_orch_python_in_envs_wins_and_nothing_is_installed_into_it(tmp_path: Path) -> None:
    python = program(tmp_path / "mine", FAKE_PYTHON)
    env = {"ORCH_PYTHON": str(python), "RECORD": str(tmp_path / "record")}
    done = run_script(setup_of(packages=("x",)), tmp_path / "home", env)
    assert done.returncode == 0
    assert not (tmp_path / "record").exists()
    assert not (tmp_path / "home/.orch").exists()


def test_installs_of_large_slices_are_spread_by_rank(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3", FAKE_PYTHON)
    program(tmp_path / "bin" / "sleep", '#!/bin/sh\necho "slept $1"\n')

    def slept(rank: int, hosts: int) -> list[str]:
        env = {"ORCH_RANK": str(rank), "ORCH_NUM_HOSTS": str(hosts), "RECORD": str(tmp_path / "record")}
        done = run_script(setup_of(packages=("x",)), tmp_path / f"h{rank}-{hosts}", env, path=str(tmp_path / "bin"))
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("slept")]

    assert slept(5, 8) == []
    waits = [slept(rank, 64)[0] for rank in range(21)]
    assert sorted(int(wait.split()[1]) for wait in waits) == list(range(21))


@pytest.mark.parametrize(
    ("program_text", "status", "out"),
    [
        ("false\necho still here", 0, "still here\n"),
        ("echo a; exit 3", 3, "a\n"),
        ("echo $undefined_name; false", 1, "\n"),
        ("false | true", 0, ""),
        ("# nothing but a comment", 0, ""),
        ("set -e\nfalse\necho no", 1, ""),
        ("umask 0027; umask", 0, "0027\n"),
        ("echo 'no newline at the end'", 0, "no newline at the end\n"),
        ("set | grep -c ^orch_; declare -F | wc -l", 0, "0\n0\n"),
    ],
)
@pytest.mark.parametrize("trained", [False, True])
def test_setup_of_the_task_is_a_plain_bash_script(
    tmp_path: Path, program_text: str, status: int, out: str, trained: bool
) -> None:
    home = tmp_path / "home"
    program(home / f"{TRAINER_ROOT}/trainer/__main__.py", "")
    python = program(tmp_path / "python", "#!/bin/sh\n")
    text = setup_of(user_setup=program_text, bundled_trainer=trained, python=str(python))
    done = run_script(text, home)
    assert (done.returncode, done.stdout, done.stderr) == (status, out, "")


def test_setup_of_the_task_keeps_the_umask_of_the_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / f"{TRAINER_ROOT}/trainer/__main__.py", "")
    python = program(tmp_path / "python", "#!/bin/sh\n")
    text = setup_of(user_setup="umask", bundled_trainer=True, python=str(python))
    before = os.umask(0o022)
    try:
        assert run_script(text, home).stdout == "0022\n"
        os.umask(0o002)
        assert run_script(text, home).stdout == "0002\n"
    finally:
        os.umask(before)


def test_setup_runs_in_the_working_directory_and_reports_when_it_is_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    text = setup_of(user_setup="pwd", workdir="orch_workdir")
    missing = run_script(text, home)
    assert missing.returncode == 1
    assert "the working directory is not here\n  next: " in missing.stderr
    (home / ".orch/host/workdir").mkdir(parents=True)
    assert run_script(text, home).stdout == f"{home}/.orch/host/workdir\n"
    assert run_script(setup_of(user_setup="pwd"), home).stdout == f"{home}\n"


def test_conda_of_the_host_can_be_activated(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / "miniconda3/etc/profile.d/conda.sh", 'conda() { echo "conda $*"; }\nfalse\n: $unset_name\n')
    done = run_script(setup_of(user_setup="conda activate mine"), home)
    assert (done.returncode, done.stdout) == (0, "conda activate mine\n")


def test_a_script_that_is_started_with_sh_still_runs_in_bash(tmp_path: Path) -> None:
    script = tmp_path / "setup.sh"
    script.write_text(setup_of(user_setup='[[ a == a ]] && echo "bash ${BASH_VERSION:+yes}"'))
    done = subprocess.run(
        ["sh", str(script)],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "bash yes\n")


def test_trainer_that_was_not_copied_is_reported(tmp_path: Path) -> None:
    done = run_script(setup_of(bundled_trainer=True, python=sys.executable), tmp_path / "home")
    assert done.returncode == 1
    assert "/.orch/host/trainer" in done.stderr


def test_interpreter_without_the_libraries_is_reported_with_their_names(tmp_path: Path, real_python: str) -> None:
    home = tmp_path / "home"
    program(home / f"{TRAINER_ROOT}/trainer/__main__.py", "")
    python = Path(real_python, "python3").resolve()
    empty = program(tmp_path / "isolated", f'#!/bin/sh\nexec {python} -S "$@"\n')
    done = run_script(setup_of(bundled_trainer=True, python=str(empty)), home)
    assert done.returncode == 1
    assert "misses: torch numpy obstore" in done.stderr
    assert "-m pip install torch numpy obstore" in done.stderr


def test_setup_checks_the_real_trainer_on_this_processor(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / TRAINER_ROOT).mkdir(parents=True)
    (home / TRAINER_ROOT / "trainer").symlink_to(CHECKOUT / "trainer")
    text = setup_of(bundled_trainer=True, python=sys.executable, user_setup='echo "path=${PYTHONPATH-none}"')
    done = run_script(text, home, HOST)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok: torch") and "on cpu" in lines[0]
    assert lines[-1] == "path=none"


def test_neuron_without_the_image_of_aws_names_the_image(tmp_path: Path) -> None:
    done = run_script(setup_of("neuron", bundled_trainer=True), tmp_path / "home")
    assert done.returncode == 1
    assert "this image has no PyTorch for Neuron" in done.stderr
    assert "SDK 2.28" in done.stderr


def test_neuron_adds_libraries_beside_the_image_and_not_into_it(tmp_path: Path, index: dict[str, str]) -> None:
    home = tmp_path / "home"
    env = {**index, "ORCH_PYTHON": sys.executable}
    text = setup_of(
        "neuron", packages=("tiny==1.0",), user_setup='"$ORCH_PYTHON" -c "import tiny; print(tiny.__file__)"'
    )
    done = run_script(text, home, env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{home}/.orch/site/tiny.py"
    again = run_script(text, home, {**env, "PIP_FIND_LINKS": ""})
    assert (again.returncode, again.stdout.splitlines()) == (0, [f"{home}/.orch/site/tiny.py"])


def test_packages_of_each_backend() -> None:
    libraries = ("numpy>=2.0,<3", "obstore==0.12.1", "tokenizers==0.23.3", "torchao==0.18.0")
    assert trainer_packages("cpu") == ("torch==2.13.0", *libraries)
    assert trainer_packages("tpu")[:2] == ("torch==2.13.0", "torch_tpu==0.2.0")
    assert trainer_packages("xla")[:2] == ("torch==2.9.0", "torch_xla[tpu]==2.9.0")
    assert backend_packages("jax") == ("jax==0.10.2",)
    assert [backend_packages("jax", device)[0] for device in ("tpu", "cuda")] == [
        "jax==0.10.2",
        "jax[cuda12]==0.10.2",
    ]


def test_what_comes_with_an_image_is_never_installed_again() -> None:
    for backend, device in (("neuron", ""), ("neuron", "xla"), ("jax", "neuron")):
        beside = trainer_packages(cast("Backend", backend), device)
        assert beside == ("obstore==0.12.1", "tokenizers==0.23.3")
        assert not {"torch", "jax", "jaxlib", "numpy"} & {word.partition("=")[0] for word in beside}


def test_every_requirement_of_ours_is_pinned() -> None:
    for backend in get_args(Backend):
        for device in ("", "tpu", "cuda", "neuron"):
            for requirement in trainer_packages(backend, device):
                assert "==" in requirement or requirement.startswith("numpy>="), requirement


@pytest.mark.parametrize("workdir", ["", "/abs", "../up", "a/../../b"])
def test_working_directory_is_below_the_home_directory(workdir: str) -> None:
    with pytest.raises(ValueError, match="below the host's home"):
        SetupInputs(backend="cpu", user_setup="x", workdir=workdir)


def test_packages_never_go_to_an_interpreter_that_is_there_already() -> None:
    with pytest.raises(ValueError, match="never for an existing interpreter"):
        SetupInputs(backend="cpu", packages=("x",), python="/usr/bin/python3")
