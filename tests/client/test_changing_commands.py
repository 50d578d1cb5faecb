"""Commands that change something, on an own store and through a service: the same words, answers and statuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.orch_process import Orch, until
from support.service_site import log_in, serve

pytestmark = pytest.mark.slow  # processes of orch on real hosts of this computer
HERE = ("--infra", "local:1")
STEP = re.compile(r"(?:creating|starting|stopping|ending|mine-ID-1|sync|setup|job \d on) .*")  # that an engine reports
TASK = "name: t\nworkdir: work\nresources: {infra: 'local:1'}\nsetup: echo set up\nrun: cat a.txt\n"
AFTERNOON = (
    ("launch", *HERE, "-c", "mine", "echo one; exit 3"),
    ("launch", "task.yaml", "-c", "mine"),
    ("exec", "mine", "--", "echo $GREETING; exit 4"),
    ("exec", "mine", "--env", "GREETING=hello", "--", "echo $GREETING"),
    ("exec", "mine", "--workdir", "work", "--host", "0", "--", "cat", "a.txt"),
    ("exec", "mine", "--dry-run", "--", "hostname"),
    ("exec", "mine", "-o", "json", "--", "true"),
    ("exec", "mine"),
    ("exec", "mine", "--host", "7", "--", "true"),
    ("exec", "nothere", "--", "true"),
    ("cancel", "mine", "--dry-run"),
    ("cancel", "mine", "99"),
    ("cancel", "mine", "-o", "json"),
    ("cancel", "mine", "--all"),
    ("cancel", "mine"),
    ("stop", "mine", "--dry-run"),
    ("stop", "mine", "--dry-run", "-o", "json"),
    ("stop", "mine"),
    ("stop", "mine"),
    ("start", "mine", "--dry-run"),
    ("start", "mine", "-o", "json"),
    ("start", "mine"),
    ("down", "mine", "nothere", "--dry-run", "-v"),
    ("down", "nothere"),
    ("stop", "nothere"),
    ("start", "nothere"),
    ("cancel", "nothere"),
    ("cancel", "nothere", "--all"),
    ("down", "nothere", "mine"),
    ("down", "mine", "-o", "json"),
    ("down", "--all"),
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a command, without what is another one for each cluster or moment."""

    words: tuple[str, ...]
    status: int
    out: str
    end: str
    steps: tuple[str, ...]


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Orch, Orch]]:
    """A computer with its own store, and one of a member of a service."""
    folder = tmp_path_factory.mktemp("roads")
    service, own = Orch(folder / "service"), Orch(folder / "own")
    for orch in (service, own):
        orch.folder.mkdir()
    with serve(service, "--allow", "infra:local", page_only=False) as site:
        yield own, log_in(site, folder / "ada", site.port)


def spend_afternoon(orch: Orch) -> list[Answer]:
    """Run the commands one after the other on a cluster with a running job."""
    (orch.folder / "task.yaml").write_text(TASK)
    (orch.folder / "work").mkdir()
    (orch.folder / "work" / "a.txt").write_text("A\n")
    found: list[Answer] = []
    for words in AFTERNOON:
        if len(found) == AFTERNOON.index(("cancel", "mine", "--dry-run")):
            orch.ok("launch", *HERE, "-c", "mine", "--detach", "sleep 600")
            until("the job runs", lambda: "running" in orch.ok("queue", "mine"), 60)
        done = orch(*words)
        end = plain(end_of(done.stderr))
        found_steps = (step_of(line) for line in plain(done.stderr).splitlines())
        steps = tuple(step for step in found_steps if step)
        found.append(Answer(words=words, status=done.returncode, out=plain(done.stdout), end=end, steps=steps))
    return found


def step_of(line: str) -> str:
    """Return a step that an engine reports, whether or not output came before its end; "" for other lines."""
    line = line.removesuffix(" in TIME").replace(": done", " … done")
    return line if STEP.match(line) and not line.endswith("… ") else ""


def end_of(text: str) -> str:
    """Return the error at the end of what a command reported, else its last line: the steps before are progress."""
    error = re.search(r"^error\[.*\n(?: .*\n)*\Z", text, re.MULTILINE)
    return error[0] if error is not None else text.rstrip().rpartition("\n")[2]


def plain(text: str) -> str:
    """Return text without the ids of clusters, times, and the form of plans that a service does not make."""
    # The end of an order has no results of hosts.
    text = re.sub(r'"hosts": \[\s*\{.*?\}\s*\]', '"hosts": []', text, flags=re.DOTALL)
    text = re.sub(r"-\d{6}-[0-9a-f]{4}\b", "-RUN", text)
    text = re.sub(r"127(?:\.\d+){3}", "ADDRESS", text)
    text = re.sub(r"mine-[0-9a-f]{6}", "mine-ID", text).replace("-o sh (as a script), ", "")
    # How long ago the last request was decides whether a plan waits first.
    text = re.sub(r' *\{\s*"do": "wait",\s*"on": "pause"[^}]*\},?\n| *… wait: waiting for the effect.*\n', "", text)
    text = re.sub(r'"at_most_seconds": [\d.]+', '"at_most_seconds": N', text)
    text = re.sub(r"\b[0-9a-f]{8,64}\b", "HEX", text)
    return re.sub(r"\b\d+(?:\.\d+)? (?:s|min)\b|\d\d:\d\d(?::\d\d)?", "TIME", text)


def test_the_same_afternoon_has_the_same_answers(roads: tuple[Orch, Orch]) -> None:
    own, member = map(spend_afternoon, roads)
    for here, there in zip(own, member, strict=True):
        assert here == there
    assert {answer.status for answer in own} >= {0, 3}
    (ending,) = (json.loads(answer.out) for answer in own if answer.words == ("cancel", "mine", "-o", "json"))
    assert ending["kind"] == "ending"
    assert any("sync" in step for step in own[1].steps)


def test_a_command_reports_its_own_steps_alone(roads: tuple[Orch, Orch]) -> None:
    _, member = roads
    member.ok("launch", *HERE, "-c", "both", "true")
    first = member.start("exec", "both", "--", "echo begun; sleep 5")
    assert first.stdout is not None and "begun" in first.stdout.readline()
    for _ in range(2):
        member.ok("exec", "both", "--", "true")
    _, err = first.communicate(timeout=90)
    assert first.returncode == 0 and err.count(": done") + err.count("… done") == 1, err
    member.ok("down", "both")
