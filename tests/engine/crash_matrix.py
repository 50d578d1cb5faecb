"""The crash matrix: forked commands are killed at named points and repeated, and the result is checked."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from crash_verbs import FOREIGN, ORPHANS, Verb, down, newest_job, reap
from support.copied_store import untie
from support.lanes import FULL, share_of
from support.postgres import postgres_server
from support.proof import report
from support.server_rows import empty_database, read_rows, write_rows
from support.simulated import Points, SharedClock, SimHome, durable, use_home
from support.slice_names import short_names

from orchestrator.engine.state.recorded import open_reader
from orchestrator.paths import load_paths
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.simulator.clock import START
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.state import QueuePhase, Resource
from orchestrator.store import integrity
from orchestrator.store.location import store_location

_NOTES = ("note_", "touch_", "acquire", "release", "__init__", "GET")  # what is only remembered, or only read
_QUEUED = {QueuePhase.ACTIVE: "ready"}
Database = Literal["SQLite", "PostgreSQL"]
INTENT = "orch-intent"  # the label that says for which record a slice was made
_PART = re.compile(r"(?P<slice>.+)-s\d+")  # NAME-s0, NAME-s1: what several requests make of one intent


@contextmanager
def empty_store(database: Database) -> Generator[str | None]:
    """Yield the address of an empty store in a own PostgreSQL server; None for SQLite."""
    if database == "SQLite":
        yield None
        return
    with postgres_server() as server:
        yield server.new_store()


@dataclass
class Place:
    """One simulated home that is set up, killed, saved and restored, always in the same folder.

    `server` is the address of an empty PostgreSQL database for the store; None: SQLite, in the folder.
    """

    root: Path
    honour_tokens: bool = True
    server: str | None = None
    clock: SharedClock = field(default_factory=SharedClock)

    @property
    def live(self) -> Path:
        return self.root / "live"

    def home(self, points: Points | None = None) -> SimHome:
        use_home(self.live, self.server)
        return SimHome(durable(self.live, self.clock, honour_tokens=self.honour_tokens), points or Points())

    def left_auxiliary(self) -> list[str]:
        """Return what a cloud keeps beside its slices and should not; those of orphans are left to the sweep."""
        return []

    def begin(self, verb: Verb) -> None:
        """Prepare the state in which the command starts."""
        shutil.rmtree(self.live, ignore_errors=True)
        self.live.mkdir(parents=True)
        if self.server is not None:
            empty_database(self.server)
        self.clock.set(START)
        verb.begin(self.home())
        self.keep("base")

    def keep(self, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)
        if self.server is not None:
            (self.live / "rows").write_bytes(read_rows(self.server))
        (self.live / "now").write_text(repr(self.clock.now()))
        shutil.copytree(self.live, self.root / name)

    def bring_back(self, name: str) -> None:
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.root / name, self.live)
        for database in self.live.rglob("orch.db"):
            untie(database)  # the copy is the test's own means, and not what it tests
        self.clock.set(float((self.live / "now").read_text()))
        if self.server is not None:
            write_rows(self.server, (self.live / "rows").read_bytes())


@dataclass
class Counts:
    """What a matrix counted; `names` says how often it killed at each named point."""

    verbs: int = 0
    singles: int = 0
    doubles: int = 0
    violations: list[str] = field(default_factory=list[str])
    names: Counter[str] = field(default_factory=Counter[str])

    def report(self, name: str, **more: int) -> None:
        """Record the counts for the table of docs/promises.md."""
        counts = {"commands": self.verbs, "crash points": set(self.names), "kills": self.singles}
        pairs = {"double kills": self.doubles} if self.doubles else {}
        report(name, {**counts, **pairs, **more}, len(self.violations))


def matrix(
    place: Place,
    verbs: Sequence[Verb],
    *,
    doubles: float = 0.0,
    points: Literal["all", "distinct"] = "all",
    kills: int | None = None,
    turn: int = 0,
    seed: int = 0,
    then: Callable[[Place, Verb, str], list[str]] | None = None,
) -> Counts:
    """Kill every verb at its crash points, give it again, and count what is violated.

    Args:
        place: The simulated cloud and its store.
        verbs: Commands to kill.
        doubles: Share of the pairs of points that are tried, by chance of the seed.
        points: "distinct" leaves out points between which nothing lasting changes.
        kills: Single kills of one verb in the core, at distinct points that are spread evenly; see `share_of`.
        turn: Verbs with different numbers are killed at different points.
        seed: Chooses the pairs.
        then: What is done after a single kill instead of the same command, and returns what is wrong; see finish.
    """
    counts, chance = Counts(), random.Random(seed)
    for verb in verbs:
        counts.verbs += 1
        place.begin(verb)
        names = points_of(place, "base", verb)
        one_of_each = distinct(names)
        every = range(1, len(names) + 1) if points == "all" else one_of_each
        for number in every if kills is None or FULL else share_of(one_of_each, kills, turn):
            name = kill(place, "base", verb, number, counts)
            counts.singles += 1
            if number in one_of_each and doubles:
                place.keep("killed")
                _doubles(place, verb, name, counts, lambda: chance.random() < doubles)
                place.bring_back("killed")
            counts.violations += (then or finish)(place, verb, f"at {number} {name}")
    return counts


def _doubles(place: Place, verb: Verb, first: str, counts: Counts, chosen: Callable[[], bool]) -> None:
    for number in distinct(points_of(place, "killed", verb)):
        if chosen():
            second = kill(place, "killed", verb, number, counts)
            counts.doubles += 1
            counts.violations += finish(place, verb, f"{first}, and again at {number} {second}")


def points_passed(place: Place, verb: Verb) -> set[str]:
    """Return the names of the distinct points that the verb passes when nothing kills it."""
    place.begin(verb)
    names = points_of(place, "base", verb)
    return {names[number - 1] for number in distinct(names)}


def points_of(place: Place, kept: str, verb: Verb) -> list[str]:
    """Return the names of all points that the command passes when nothing kills it."""
    place.bring_back(kept)
    home = place.home()
    verb.act(home)
    return home.points.names


def finish_after(place: Place, verb: Verb, name: str) -> list[str]:
    """Kill the verb at the first point of this name, give it again, and return what is wrong."""
    place.begin(verb)
    number = points_of(place, "base", verb).index(name) + 1
    kill(place, "base", verb, number, Counts())
    return finish(place, verb, f"at {number} {name}")


def distinct(names: Sequence[str]) -> list[int]:
    """Return the numbers of the points that leave different states behind.

    A kill before a change leaves what a kill after the change before it has left; one inside a call leaves what one
    after it leaves; and some commits only note what was seen.
    """
    chosen: list[int] = []
    for number, name in enumerate(names, start=1):
        when, _, what = name.partition(" ")
        covered = when == "after" and f"inside {what}" in names[max(0, number - 3) : number]
        if (when == "before" and number > 1) or covered or any(note in what for note in _NOTES):
            continue
        chosen.append(number)
    return chosen


def kill(place: Place, kept: str, verb: Verb, number: int, counts: Counts) -> str:
    place.bring_back(kept)
    name = killed_at(place, verb.act, number)
    if name is None:
        raise AssertionError(f"{verb.name} has no point {number} when it is done again from the same beginning")
    counts.names[name] += 1
    return name


def killed_at(place: Place, act: Callable[[SimHome], None], deadly: int) -> str | None:
    """Run it in a child that kills itself at this point; return the point's name, or None if it ended before."""
    said = place.root / "said"
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _be_the_child(place, act, deadly, said)
    _, status = os.waitpid(child, 0)
    words = said.read_text() if said.exists() else ""
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, words
        return words
    assert os.WEXITSTATUS(status) == 0, f"at point {deadly}: {words}"
    return None


def _be_the_child(place: Place, act: Callable[[SimHome], None], deadly: int, said: Path) -> None:
    def strike(name: str) -> None:
        said.write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)

    status = 1
    try:
        act(place.home(Points(strike, deadly)))
        status = 0
    except BaseException:  # nothing of the child may come back into pytest's own code
        said.write_text(traceback.format_exc())
    finally:
        os._exit(status)


def finish(place: Place, verb: Verb, where: str) -> list[str]:
    """Repeat the command, take everything down at the end, and return what is wrong at each stage."""
    wrong = [f"as it was killed: {what}" for what in untracked(place, verb)]
    home = place.home()
    try:
        verb.act(home)
        home.pass_time(1.0)  # what a killed command has asked the cloud for is done by then
        wrong += [f"given again: {what}" for what in [*_fulfilled(place, verb), *sound(place)]]
        wrong += _taken_down(place, home)
    except Exception:  # a failure of the product is what the test looks for: it is listed with the others
        wrong.append(f"it raised: {traceback.format_exc(limit=-6)}")
    return [f"{verb.name}, killed {where}: {what}" for what in wrong]


def take_down(place: Place, verb: Verb, where: str) -> list[str]:
    """Take down what a killed command has left, and return what is wrong then."""
    try:
        wrong = _taken_down(place, place.home())
    except Exception:  # as above
        wrong = [f"it raised: {traceback.format_exc(limit=-6)}"]
    return [f"{verb.name}, killed {where}: {what}" for what in wrong]


def _taken_down(place: Place, home: SimHome) -> list[str]:
    down(home)
    wrong = [f"after down: {what} is left" for what in place.left_auxiliary() if not what.endswith(ORPHANS)]
    reap(home)
    wrong += [f"after the sweep: {what} is left" for what in place.left_auxiliary()]
    return wrong + [f"after down: {what}" for what in [*nothing_left(place), *sound(place)]]


def live_of(cloud: SimulatedCloud) -> dict[str, str]:
    """Return the states by name. A queued request counts as one slice, whatever it has or has not yet."""
    slices = {look.name: look.phase.value for look in cloud.live() if not look.queued}
    waiting = [queued for queued in cloud.state.queued.values() if not queued.gone]
    return slices | {queued.name: _QUEUED.get(queued.phase, queued.phase.value) for queued in waiting}


def tracked() -> set[str]:
    with open_reader() as reader:
        intents = [intent for cluster in reader.clusters() for intent in reader.intents(cluster)]
    return {intent.name for intent in intents if intent.state not in FINAL_STATES}


def untracked(place: Place, verb: Verb) -> list[str]:
    with place.home().access.open() as cloud:
        alive = set(live_of(cloud))
    left = _slices(alive) - tracked() - set(ORPHANS if verb.name == "reap" else ())
    return [f"{sorted(left)} live and no record wants them"] if left else []


def _fulfilled(place: Place, verb: Verb) -> list[str]:
    wrong: list[str] = []
    with place.home().access.open() as cloud:
        alive, ran = live_of(cloud), programs(cloud)
    short = dict(zip(short_names(alive), alive.values(), strict=True))
    if short != verb.alive:
        wrong.append(f"{short} live, and should {verb.alive}")
    if _slices(alive) != tracked():
        wrong.append(f"{sorted(alive)} live, and {sorted(tracked())} are on record")
    cluster, newest = newest_job()
    with open_reader() as reader:
        jobs = reader.jobs(cluster)
    if (newest.state, newest.code) != ("ended", verb.code):
        wrong.append(f"the job is {newest.state}, {newest.code}: {newest.what}")
    many = {name: count for name, count in ran.items() if count != 1}
    if many:
        wrong.append(f"programs ran more than once: {many}")
    folders = {name.rpartition("@")[0] for name in ran}
    again = max(
        0, len([job for job in jobs if job.kind == "launch"]) - 1
    )  # a launch that was killed after its very end
    if len(folders) != verb.runs + again or len(ran) != verb.hosts * len(folders):
        wrong.append(f"{sorted(ran)} ran, and should {verb.runs} attempt(s) + {again} on {verb.hosts} host(s)")
    return wrong


def _slices(machines: Iterable[str]) -> set[str]:
    """Return the names of the slices that these machines are of."""
    return {part["slice"] if (part := _PART.fullmatch(name)) else name for name in machines}


def _part(resource: Resource) -> str:
    """Return which part of its slice this is, such as "-s1"; "" where it is the whole."""
    part = _PART.fullmatch(resource.name)
    return resource.name.removeprefix(part["slice"]) if part else ""


def programs(cloud: SimulatedCloud) -> Counter[str]:
    """Count by JOB@RANK, or JOB@RANK-PART, how many such hosts ran it, in all slices that ever existed."""
    return Counter(
        f"{job}@{host.rank}{_part(resource)}"
        for resource in cloud.state.resources.values()
        for host in resource.hosts
        for job in host.jobs
        if "setup" not in job
    )


def intents_of(cloud: SimulatedCloud, *, living: bool = False) -> Counter[str]:
    """Count by intent, and by part, how many slices were ever made for it, or only those that are live now."""
    resources = cloud.host_world().living() if living else cloud.state.resources.values()
    slices = [(resource.labels, _part(resource)) for resource in resources if not resource.queued]
    requests = [(queued.node["labels"], "") for queued in cloud.state.queued.values() if not (living and queued.gone)]
    return Counter(labels[INTENT] + part for labels, part in (*slices, *requests) if INTENT in labels)


def nothing_left(place: Place) -> list[str]:
    with place.home().access.open() as cloud:
        alive = live_of(cloud)
    wrong = [f"{alive} still live"] if alive else []
    with open_reader() as reader:
        open_ones = [cluster.name for cluster in reader.clusters()]
    if open_ones:
        wrong.append(f"{open_ones} are still on record")
    keys = [folder.name for folder in (load_paths().state / "keys").glob("*/")]
    if keys:
        wrong.append(f"the keys of {keys} were left")
    return wrong


def sound(place: Place) -> list[str]:
    """Return violations of what always holds: one slice per intent, no foreign slice touched, a complete audit."""
    wrong: list[str] = []
    with place.home().access.open() as cloud:
        made = intents_of(cloud)
        foreign = {resource.name for resource in cloud.state.resources.values() if resource.foreign}
        living = {resource.name for resource in cloud.host_world().living() if resource.foreign}
        trespasses = cloud.trespasses()
    twice = [intent for intent, count in made.items() if count > 1]
    if twice:
        wrong.append(f"{len(twice)} intent(s) had two slices")
    if trespasses or living != foreign or foreign != set(FOREIGN):
        wrong.append(f"another owner's slice was touched: {trespasses}, {living} live")
    return wrong + [
        f"the audit: {what}" for what in integrity.find_store_faults(store_location(os.environ, load_paths()))
    ]
