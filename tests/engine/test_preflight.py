"""Machines on which a task is known to fail are not rented; their plan is shown nevertheless."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.notes import plan_notes
from orchestrator.engine.preparation.preflight import (
    large_variable_error,
    preflight_error,
    shared_disk_error,
    shell_syntax_error,
    unsupported_hosts_error,
)
from orchestrator.engine.rehearsal.rehearse import Faults, prepare_rehearsal
from orchestrator.errors import AccessError, UserError
from orchestrator.providers.aws.candidates import missing_credentials_error
from orchestrator.providers.registry import load_planner
from orchestrator.slices import HostFacts
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task
from orchestrator.values import Secret

MINE = "checkpoint: {bucket: s3://mine/runs}"


def task(more: str, resources: str = "{accelerators: 'H100:8'}") -> Task:
    return parse_task(f"run: echo\nresources: {resources}\n{more}\n", file="t.yaml", env={}).only


@pytest.mark.parametrize(
    ("size", "fits"),
    [(32 * 4096 - len("BIG=") - 1, True), (32 * 4096 - len("BIG="), False)],
)
def test_a_variable_that_linux_would_not_pass_on_is_refused(size: int, fits: bool) -> None:
    given = task("").model_copy(update={"envs": (("BIG", "x" * size),)})
    secret = task("").model_copy(update={"secret_names": ("BIG",), "secrets": (Secret("BIG", "x" * size),)})
    program = subprocess.run(["/bin/true"], env={"BIG": "x" * size}, check=False) if fits else None
    assert program is None or program.returncode == 0
    if not fits:
        with pytest.raises(OSError, match="Argument list too long"):
            subprocess.run(["/bin/true"], env={"BIG": "x" * size}, check=False)
    for one in (given, secret):
        refused = preflight_error(one, HostFacts())
        assert refused is None if fits else refused is not None and "BIG" in refused.what
        assert fits or "xxx" not in str(refused)


@pytest.mark.parametrize(
    ("field", "text", "fits"),
    [
        ("run", 'echo "unterminated', False),
        ("setup", "if true; then", False),
        ("run", "shopt -s extglob\nrm -f -- !(kept)", True),
        ("run", "if !(false); then echo; fi; cat <<X\nunfinished", True),
        ("run", "", True),
    ],
)
def test_a_script_that_bash_cannot_read_is_refused(field: str, text: str, fits: bool) -> None:
    refused = preflight_error(task("").model_copy(update={field: text}), HostFacts())
    assert refused is None if fits else refused is not None and f"`{field}`" in refused.what and "line" in refused.why


def test_variables_that_are_too_long_together_are_refused() -> None:
    many = tuple((f"V{at}", "x" * 100_000) for at in range(20))
    assert large_variable_error(task("").model_copy(update={"envs": many[:17]})) is None
    assert large_variable_error(task("").model_copy(update={"envs": many})) is not None


@pytest.mark.parametrize("more", [MINE, "file_mounts: {/data: s3://mine/data}"])
def test_a_bucket_without_an_instance_profile_is_refused(more: str) -> None:
    refused = missing_credentials_error(task(more), HostFacts())
    assert isinstance(refused, AccessError)
    assert "s3://mine" in refused.what
    assert refused.next_step.startswith("orch check aws --bucket s3://")


@pytest.mark.parametrize(
    "fine",
    [
        task(f"{MINE}\nconfig: {{aws: {{instance_profile: trainer}}}}"),
        task(f"{MINE}\nenvs: {{AWS_PROFILE: mine}}"),
        task(f"{MINE}\nsecrets: {{AWS_ACCESS_KEY_ID: a}}"),
        task("checkpoint: {bucket: 'gs://mine/runs'}"),
        task(""),
        task(MINE, "{accelerators: v5e-8}"),
        task(MINE, "{infra: local}"),
    ],
)
def test_a_bucket_that_needs_no_credentials_or_has_some_is_accepted(fine: Task) -> None:
    assert missing_credentials_error(fine, HostFacts()) is None


def test_credentials_given_by_the_provider_count() -> None:
    assert missing_credentials_error(task(MINE), HostFacts(env=(("AWS_ACCESS_KEY_ID", "a"),))) is None


@pytest.mark.parametrize(
    ("more", "resources", "names"),
    [
        ("file_mounts: {/data: s3://mine/data}", "{infra: gcp, accelerators: v5e-8}", "AWS_ACCESS_KEY_ID"),
        ("file_mounts: {/data: {source: s3://mine/data, mode: COPY}}", "{infra: gcp, cpus: 4}", "~/.aws"),
        ("file_mounts: {/data: gs://mine/data}", "{infra: aws, cpus: 4}", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("checkpoint: {bucket: 's3://mine/data'}", "{accelerators: v6e-16}", "AWS_ACCESS_KEY_ID"),
        ("checkpoint: {bucket: 'gs://mine/data'}", "{accelerators: 'H100:8'}", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("checkpoint: {bucket: 's3://mine/data'}", "{accelerators: [H100:8, v6e-16]}", "a bucket of Google"),
    ],
)
def test_a_bucket_of_another_cloud_needs_credentials(more: str, resources: str, names: str) -> None:
    refused = preflight_error(task(more, resources), HostFacts())
    assert isinstance(refused, AccessError) and "could not open" in refused.what and "mine/data" in refused.what
    assert names in refused.next_step


@pytest.mark.parametrize(
    "fine",
    [
        task("file_mounts: {/data: gs://mine/data}", "{infra: gcp, accelerators: v5e-8}"),
        task("file_mounts: {/data: s3://mine/data, ~/.aws: ./keys}", "{infra: gcp, accelerators: v5e-8}"),
        task("secrets: {AWS_ACCESS_KEY_ID: a}\nfile_mounts: {/data: s3://mine/data}", "{infra: gcp, cpus: 4}"),
        task("file_mounts: {/data: s3://mine/data}", "{infra: gcp, cpus: 4, image_id: projects/p/global/images/i}"),
        task("file_mounts: {/data: s3://mine/data}", "{infra: local}"),
        task("checkpoint: {bucket: 's3://mine/data'}", "{infra: local}"),
        task("checkpoint: {bucket: 'gs://mine/data'}", "{accelerators: v6e-16}"),
        task("secrets: {AWS_ACCESS_KEY_ID: a}\ncheckpoint: {bucket: 's3://mine/data'}", "{accelerators: v6e-16}"),
    ],
)
def test_a_mount_with_credentials_or_of_the_same_cloud_is_accepted(fine: Task) -> None:
    assert preflight_error(fine, HostFacts()) is None


def test_training_data_in_a_bucket_of_another_cloud_need_credentials() -> None:
    given = "resources: {accelerators: v6e-16}\ntrain: {args: {data: 's3://mine/data'}}\n"
    refused = preflight_error(parse_task(given, file="t.yaml", env={}).only, HostFacts())
    assert isinstance(refused, AccessError) and "s3://mine/data" in refused.what
    given += "secrets: {AWS_ACCESS_KEY_ID: a}\n"
    assert preflight_error(parse_task(given, file="t.yaml", env={}).only, HostFacts()) is None


def train(resources: str, nodes: int = 1, backend: str = "auto") -> Task:
    text = f"train: {{backend: {backend}}}\nnum_nodes: {nodes}\nresources: {resources}\n"
    return parse_task(text, file="t.yaml", env={}).only


@pytest.mark.parametrize(
    "lazy",
    [train("{accelerators: 'Trainium:16'}", 4, "neuron"), train("{accelerators: 'Trainium:16'}", 2, "xla")],
)
def test_the_bundled_trainer_on_several_hosts_with_the_lazy_torch(lazy: Task) -> None:
    refused = unsupported_hosts_error(lazy, HostFacts())
    assert isinstance(refused, UserError)
    assert lazy.choices[0].machine.name in refused.what
    assert isinstance(preflight_error(lazy, HostFacts()), UserError)


@pytest.mark.parametrize(
    "fine",
    [
        train("{accelerators: v5e-16}"),
        train("{accelerators: v5e-16}", backend="xla"),
        train("{accelerators: v5e-16}", backend="cpu"),
        train("{accelerators: 'Trainium:16'}", 2),
        train("{accelerators: 'Trainium:16'}", backend="neuron"),
        train("{accelerators: 'Trainium2:16', use_spot: true}", 2),
        train("{accelerators: 'H100:8'}", 2),
        train("{infra: 'local:v5e-16'}"),
        task("", "{accelerators: v5e-16}"),
    ],
)
def test_the_bundled_trainer_elsewhere(fine: Task) -> None:
    assert preflight_error(fine, HostFacts()) is None


def test_the_software_of_the_hosts_decides() -> None:
    assert preflight_error(train("{accelerators: v5e-16}"), HostFacts(backend="cpu", has_accelerator=False)) is None


DISK = "checkpoint: {bucket: 'file:///runs'}"


@pytest.mark.parametrize("resources", ["{accelerators: v5e-16}", "{accelerators: 'H100:8'}"])
def test_a_bucket_on_the_disk_of_a_rented_machine_is_refused(resources: str) -> None:
    refused = preflight_error(task(DISK, resources), HostFacts())
    assert isinstance(refused, UserError)
    assert "file:///runs" in refused.what
    assert ("s3://" if "H100" in resources else "gs://") in refused.next_step


def test_a_local_bucket_on_own_machines_is_accepted() -> None:
    assert preflight_error(task(DISK, "{infra: local}"), HostFacts()) is None
    assert preflight_error(task(DISK, "{accelerators: v5e-16}"), HostFacts(backend="cpu", shares_files=True)) is None, (
        "hosts on this computer"
    )


OUTSIDE = "file_mounts: {/data/in: s3://mine/data, ~/fine: s3://mine/fine}"


def test_simulated_hosts_never_write_outside_of_their_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spot = task(OUTSIDE, "{accelerators: v5e-16, infra: gcp, use_spot: true}")
    assert shared_disk_error(spot) is None, "rented machines have own disks"
    with pytest.raises(UserError, match="would write to /data/in of this computer") as caught:
        prepare_rehearsal(tmp_path / "home", spot, "mine", Faults())
    assert caught.value.next_step.endswith("~/data/in")
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv("ORCH_GCP_ENDPOINT", "http://127.0.0.1:9")
    refused = preflight_error(spot, load_planner("gcp").host_facts(list_candidates(spot)[0]))
    assert isinstance(refused, UserError) and "/data/in" in refused.what
    assert shared_disk_error(task("", "{accelerators: v5e-16, infra: gcp}")) is None


def test_hosts_of_this_computer_write_outside_of_their_homes_and_the_plan_says_so() -> None:
    here = task(OUTSIDE, "{infra: 'local:2'}")
    assert shared_disk_error(here) is None
    assert any("write to this computer" in note and "/data/in" in note for note in plan_notes(here, shares_files()))
    assert not any("this computer" in note for note in plan_notes(task("", "{infra: local}"), shares_files()))
    mounted = "file_mounts: {/data/in: {source: 's3://mine/data', mode: MOUNT}}"
    refused = preflight_error(task(mounted, "{infra: 'local:2'}"), shares_files())
    assert isinstance(refused, UserError) and "/data/in" in refused.what
    assert shared_disk_error(task(mounted, "{infra: 'local:1'}")) is None


def shares_files() -> HostFacts:
    return HostFacts(backend="cpu", shares_files=True, has_accelerator=False)


@pytest.mark.parametrize(("version", "refused"), [("3", False), ("5", True)])
def test_a_bash_that_knows_less_than_that_of_the_hosts_refuses_nothing(
    version: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bash of macOS is 3.2. This one says so of itself, and is the real one in everything else."""
    bash = shutil.which("bash")
    played = tmp_path / "bash"
    played.write_text(f'#!{bash}\n[ "$1" != -c ] || exec {bash} -c "${{2//BASH_VERSINFO\\[0\\]/VERSION}}" "${{@:3}}"\n')
    played.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("VERSION", version)
    task = parse_task("run: 'echo \"'\nresources: {infra: 'local:1'}\n", file="t.yaml", env={}).only
    assert (shell_syntax_error(task) is not None) is refused


def test_the_plan_says_which_launcher_hides_the_status_that_decides() -> None:
    rules = "recovery: {restart_on_exit_codes: [3]}"

    def notes(program: str, more: str) -> list[str]:
        text = f"run: {program}\nresources: {{infra: local}}\n{more}\n"
        written = parse_task(text, file="t.yaml", env={}).only
        return [note for note in plan_notes(written, shares_files()) if "exit_codes" in note]

    (hidden,) = notes("ray job submit -- python train.py", rules)
    assert hidden.startswith("restart_on_exit_codes: Ray reports the status of a process of the program where")
    assert notes("ray job submit -- python train.py", "") == notes("torchrun train.py", rules) == []
