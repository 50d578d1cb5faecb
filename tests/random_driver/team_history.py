"""Two computers of servers work on one cluster at the same time, disturbed at random: no machine is lost or doubled.

Each has a state folder, which the other's commands cannot see, and where namespaces can be made an own address. They
share a PostgreSQL behind a slow network, its login, the key for hosts, and the credentials of one cloud. Commands of
another account strike in between.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from random_driver.driver import KNOWN_STATUSES, find_open_records, read_starts, send_signal, take_down
from support.namespaces import TeamNetwork
from support.orch_process import Orch
from support.postgres import PostgresServer
from support.servers import make_servers_key, name_server
from support.slow_proxy import SlowProxy

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.simulator.state import Phase

Cloud = SimulatedAws | SimulatedGoogle
LONGEST = 40.0  # seconds after which a person gives up: the command is killed
LONGEST_FOREIGN = 200.0  # an empty answer of another account must not count after any time; EC2's counts after 90 s
MEMBERS = ("ann", "bob")
CHANGING = ("launch", "down", "stop", "start", "cancel", "resume")
COMMANDS = (
    ("launch", "two.yaml", "-c", "two", "--yes"),
    ("launch", "two.yaml", "-c", "two", "--yes", "-d"),
    ("launch", "two.yaml", "-c", "two", "--yes", "-d"),
    ("exec", "two", "--", "true"),
    ("status", "-o", "json"),
    ("logs", "two"),
    ("cancel", "two", "--force"),
    ("stop", "two", "--yes", "--force"),
    ("start", "two", "--yes"),
    ("down", "two", "--yes", "--force"),
    ("resume", "two", "--yes"),
    ("watch", "two"),
    ("reap", "--yes"),
)
FOREIGN = (
    ("down", "two", "--yes", "--force"),
    ("status",),
    ("exec", "two", "--", "true"),
    ("watch", "two"),
    ("reap", "--yes"),
)


@dataclass
class TeamHistory:
    """One history in `folder`.

    other: another account, whose credentials are used by mistake.
    network: in which the members have addresses; None: all have this computer's.
    """

    seed: int
    folder: Path
    cloud: Cloud
    other: SimulatedAws | None
    server: PostgresServer
    proxy: SlowProxy
    network: TeamNetwork | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])
    violations: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._began = time.monotonic()
        self._over = threading.Event()
        self._postgres = threading.Lock()  # it is restarted by one member at a time
        store = self.server.new_store(port=self.proxy.port)
        accelerators = "H100:1" if isinstance(self.cloud, SimulatedAws) else "tpu-v5e-4"
        infra = "aws/us-east-1" if isinstance(self.cloud, SimulatedAws) else "gcp/us-west4/us-west4-a"
        seconds = self._random.choice((0, 1, 600))
        key = make_servers_key(self.folder)
        self._computers: dict[str, Orch] = {}
        for name in MEMBERS:
            place = self.folder / name
            place.mkdir()
            (place / "two.yaml").write_text(
                f"name: two\nresources: {{accelerators: {accelerators!r}, infra: {infra}}}\n"
                f'run: |\n  echo "$ORCH_JOB $ORCH_RANK" >>{self.folder}/started\n  sleep {seconds}\n'
            )
            person = name if self.seed % 3 == 0 else "ann"
            inside = self.network.enter(name) if self.network is not None else ()
            self._computers[name] = Orch(place, {**self.cloud.env, **name_server(store, key, person)}, inside)
            self._set_up(name)

    def play(self) -> None:
        """Let both work at the same time, then take everything down and look for what is left."""
        watching = threading.Thread(target=self._watch_machines)
        seeds = [self._random.random() for _ in MEMBERS]
        watching.start()
        try:
            self._command("ann", COMMANDS[self._random.randrange(3)], self._random)
            with ThreadPoolExecutor() as pool:
                list(pool.map(self._work, MEMBERS, seeds))
        finally:
            self._over.set()
            watching.join()
            self._take_down()
        self._look_for_leftovers()

    def _set_up(self, name: str) -> None:
        if isinstance(self.cloud, SimulatedAws):
            self._computers[name].ok("config", "set", "aws.instance_profile", "orch-host")

    def _work(self, name: str, seed: float) -> None:
        mine = random.Random(seed)
        for _ in range(mine.randint(2, 4)):
            if mine.random() < 0.15:
                self._lose_computer(name)
            self._command(name, mine.choice(COMMANDS), mine)
            if self.other is not None and mine.random() < 0.5:
                self._use_other_account(name, mine.choice(FOREIGN), self.other)

    def _lose_computer(self, name: str) -> None:
        """The state folder is deleted: the server begins again on a new computer."""
        shutil.rmtree(self._computers[name].folder / "orch", ignore_errors=True)
        self._set_up(name)
        self.counts["state folders lost"] += 1
        self._note(f"{name}: the state folder is lost")

    def _command(self, name: str, words: tuple[str, ...], mine: random.Random) -> None:
        strike = mine.choice([None, None, *self._strikes(name)])
        output = self.folder / f"output-{name}"
        process = self._start(name, words, output)
        self._note(f"{name}: {' '.join(words)}  {strike.__name__ if strike else '-'}")
        self.counts["commands"] += 1
        if strike is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(mine.uniform(0.3, 6.0))
            self.counts[strike.__name__.replace("_", " ")] += 1
            strike(process, mine)
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.counts["given up"] += 1
            process.kill()
            process.wait()
        self._judge(f"{name}: {' '.join(words)}", process.returncode, output.read_text(errors="replace"))

    def _use_other_account(self, name: str, words: tuple[str, ...], other: SimulatedAws) -> None:
        """Run a command undisturbed with credentials of an account that has none of the machines."""
        output = self.folder / f"output-{name}-other"
        what = f"{name}, other account: {' '.join(words)}"
        self._note(what)
        self.counts["commands of another account"] += 1
        before = _living(self.cloud)
        process = self._start(name, words, output, other.env)
        try:
            process.wait(LONGEST_FOREIGN)
        except subprocess.TimeoutExpired:
            process.kill()
            self.violations.append(f"{what}: it does not end")
        status, said = process.wait(), output.read_text(errors="replace")
        self._judge(what, status, said)
        if status == 0 and words[0] == "exec":
            self.violations.append(f"{what}: it ran")
        if "is deleted" in said and (alive := before.keys() & _living(self.cloud).keys()):
            self.violations.append(f"{what}: it is said to be deleted, and runs: {alive}")

    def _start(
        self, name: str, words: tuple[str, ...], output: Path, other: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        orch = self._computers[name]
        with output.open("wb") as written:
            return subprocess.Popen(
                [*self._alone(name), *orch.command(*words)],
                env={**orch.env, **other}, cwd=orch.folder, stdin=subprocess.DEVNULL, stdout=written, stderr=written,
            )  # fmt: skip

    def _alone(self, name: str) -> list[str]:
        """A prefix that hides the other members' folders; the process keeps its number."""
        others = [str(self.folder / each) for each in MEMBERS if each != name]
        hide = "".join(f'mount -t tmpfs -o ro none "{place}" && ' for place in others)
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *as_root, "--mount", "sh", "-c", f'{hide}exec "$@"', "sh"]

    def _judge(self, what: str, status: int, said: str) -> None:
        self._note(f"    {what}: exit {status}: {said.strip().splitlines()[-1][:150] if said.strip() else ''}")
        if "Traceback" in said or status not in KNOWN_STATUSES:
            self.violations.append(f"{what}: exit {status}: {said[-2000:]}")

    def _note(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self._began:6.1f} {what}")

    # --- strikes ------------------------------------------------------------------------------------------

    def _strikes(self, name: str) -> list[Callable[[subprocess.Popen[bytes], random.Random], None]]:
        network = self.network

        def take_the_cable_out(process: subprocess.Popen[bytes], mine: random.Random) -> None:
            assert network is not None
            network.cut(name)
            time.sleep(mine.uniform(0.5, 8.0))
            network.restore(name)

        return [
            self.kill_orch, self.end_orch, self.interrupt_orch, self.freeze_orch, self.restart_postgres,
            self.freeze_postgres, self.cut_the_network, self.hold_the_network,
            *([take_the_cable_out] if network is not None else []),
        ]  # fmt: skip

    def kill_orch(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        process.kill()

    def end_orch(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        process.terminate()

    def interrupt_orch(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        process.send_signal(signal.SIGINT)

    def freeze_orch(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(mine.uniform(0.5, 8.0))
        process.send_signal(signal.SIGCONT)

    def restart_postgres(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        with self._postgres:
            self.server.stop()
            time.sleep(mine.uniform(0.0, 2.0))
            self.server.start()

    def freeze_postgres(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        with self._postgres:
            pids = list(self._processes_of_postgres())
            for pid in pids:
                send_signal(pid, signal.SIGSTOP)
            time.sleep(mine.uniform(0.5, 5.0))
            for pid in pids:
                send_signal(pid, signal.SIGCONT)

    def cut_the_network(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        self.proxy.cut()

    def hold_the_network(self, process: subprocess.Popen[bytes], mine: random.Random) -> None:
        self.proxy.hold(mine.uniform(0.5, 8.0))

    def _processes_of_postgres(self) -> Iterator[int]:
        """The server and its parts: all are in the session of the shell that watches it."""
        assert self.server.process is not None
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                name = (entry / "comm").read_text().strip()
                if int(fields[3]) == self.server.process.pid and name == "postgres":
                    yield int(entry.name)

    # --- judgement ----------------------------------------------------------------------------------------

    def _watch_machines(self) -> None:
        """Two that run at the same time are one too many."""
        while not self._over.wait(0.3):
            running = [name for name, phase in _living(self.cloud).items() if phase not in (Phase.ENDING, Phase.FAILED)]
            if len(running) > 1:
                self.violations.append(f"doubled: {running}")
            if self.other is not None and (stray := _living(self.other)):
                self.violations.append(f"made in the other account: {stray}")

    def _take_down(self) -> None:
        name = self._random.choice(MEMBERS)
        self.violations += take_down(self._computers[name], "two", "--yes", "--force")

    def _look_for_leftovers(self) -> None:
        if left := _living(self.cloud):
            self.violations.append(f"machines are left: {left}")
        for orch in self._computers.values():
            self.violations += find_open_records(orch)
        audit = self._computers["ann"]("events", "--verify")
        if audit.returncode != 0:
            self.violations.append(f"the audit afterwards: {audit.stdout[-500:]}{audit.stderr[-500:]}")
        starts = read_starts(self.folder)
        self.counts["programs"] += len(set(starts))
        if twice := [program for program, times in Counter(starts).items() if times > 1]:
            self.violations.append(f"started twice: {twice}")


def _living(cloud: Cloud) -> dict[str, Phase]:
    """Return the machines that exist, by name and uid."""
    with cloud.cloud.open() as opened:
        return {f"{look.name} {look.uid}": look.phase for look in opened.live()}
