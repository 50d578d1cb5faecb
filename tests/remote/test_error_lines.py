"""The cause of a failed script is its error, and the next step that it printed is a next step."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sshd import Farm

from orchestrator.remote.error_lines import LOOKS_LIKE_ERROR, find_error_lines, split_next_step
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.render.mounts import MountInputs, render_copy_mount

ROOT = Path(__file__).parents[2]
DENIED = "ERROR: (gcloud.storage.rsync) HTTPError 403: denied"


@pytest.mark.parametrize(
    ("output", "cause", "step"),
    [
        ("copying\ncopy: gs://b/d is empty\n  next: gcloud storage ls gs://b/d\n", "copy: gs://b/d is empty", "gcloud"),
        (f"{DENIED}\ncopy: no gs://b\n  next: gcloud x\n", f"{DENIED} | copy: no gs://b", "gcloud"),
        ("Traceback (most recent call last):\n  x\nValueError: y\ndone\n", "ValueError: y", ""),
        ("mount: it failed\n  next: one\nmount: it failed\n  next: two\n", "mount: it failed", "two"),
        ("\x1b[31mfatal: no\x1b[0m\r", "[31mfatal: no[0m", ""),
        ("epoch 3\nnext: rm -rf /\n", "epoch 3 | next: rm -rf /", ""),
        ("all is well\n", "", ""),
        ("", "", ""),
    ],
)
def test_the_cause_and_the_next_step_are_separated(output: str, cause: str, step: str) -> None:
    found = split_next_step(find_error_lines(output.encode()))
    assert found[0] == cause
    assert found[1].startswith(step) and bool(found[1]) == bool(step)


def test_jobs_are_searched_for_the_same_words() -> None:
    assert f"looks_like_error='{LOOKS_LIKE_ERROR}'\n" in (ROOT / "templates/remote/job-status.sh").read_text()


def test_a_script_that_fails_on_a_host_names_what_is_missing(shared_farm: Farm, tmp_path: Path) -> None:
    script = render_copy_mount(MountInputs(f"file://{tmp_path}/nowhere", "~/data"))
    hosts = SshHostOperations(shared_farm.addresses)
    for outcome in hosts.run_script(script.encode(), [0, 1, 2]):
        assert outcome.last_line == f"copy: there is nothing at file://{tmp_path}/nowhere"
        assert outcome.remedy == f"ls -la file://{tmp_path}/nowhere"
    (silent,) = hosts.run_script(b"echo almost; exit 4", [1])
    assert (silent.last_line, silent.remedy, silent.exit_code) == ("almost", "", 4)
    hosts.close()
