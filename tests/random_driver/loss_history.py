"""State folders are deleted, restored, copied and damaged while commands run: no machine and no checkpoint is lost.

A person with a SQLite file, or a team on PostgreSQL, trains on one cluster of a simulated cloud. Their hosts run the
trainer with an engine without a framework. What happens follows from the seed. At the end the person does what the
documentation says (docs/recover.md): `orch recover`, `down` of what is on record, `reap`, `recover --end` of the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from random_driver.driver import KNOWN_STATUSES, processes_of, send_signal, take_down
from support.orch_process import Orch
from support.servers import make_servers_key, name_server

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.errors import OrchError
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.simulator.state import Phase
from orchestrator.store.read import open_reader_at
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, StepFolder

Cloud = SimulatedAws | SimulatedGoogle
TESTS = Path(__file__).parents[1]
LONGEST = 45.0  # seconds after which a person gives up: the command is killed
CLUSTER = "two"
INTENT = "orch-intent"  # the label that says for which record a slice was made
ADVICE = re.compile(r"mv \S*orch\.db .*|orch store (?:copied|moved|restored)\b")
TASK = """
name: two
resources: %s
checkpoint: {bucket: "file://%s", every: 5, keep: 100000}
recovery: {max_preemptions: 3}
run: |
  echo "$ORCH_RUN_ID $ORCH_EPOCH $ORCH_ATTEMPT" >>%s
  export PYTHONPATH=%s TOY_SECONDS=0.05
  exec %s -m support.toy_engine model.dim=64 model.layers=2 seq_len=32 batch=4 steps=%s log_every=50 data=%s \\
    checkpoint.every=5 checkpoint.keep=100000
"""
COMMANDS = (
    ("launch", "two.yaml", "--yes"),
    ("launch", "two.yaml", "--yes", "-d"),
    ("launch", "two.yaml", "--yes", "-d"),
    ("status", "-o", "json"),
    ("exec", CLUSTER, "--", "true"),
    ("cancel", CLUSTER, "--force"),
    ("stop", CLUSTER, "--yes", "--force"),
    ("start", CLUSTER, "--yes"),
    ("down", CLUSTER, "--yes", "--force"),
    ("resume", CLUSTER, "--yes"),
    ("resume", "RUN", "--yes"),
    ("resume", "RUN", "--yes", "--take-over"),
    ("watch", CLUSTER),
    ("reap", "--yes"),
    ("reap", "--yes"),
    ("recover",),
)
FOREIGN = (("down", CLUSTER, "--yes", "--force"), ("status",), ("reap", "--yes"), ("recover",))


@dataclass
class LossHistory:
    """One history in `folder`.

    store: the address of a PostgreSQL store that all computers share; "" for a SQLite file on each.
    other: another account, whose credentials are used by mistake.
    """

    seed: int
    folder: Path
    cloud: Cloud
    other: SimulatedAws | None
    store: str
    counts: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])
    violations: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._began = time.monotonic()
        self._over = threading.Event()
        self._manifests: dict[Path, bytes] = {}
        self._steps = self._random.choice((20, 100_000))
        self._computers: dict[str, Orch] = {}
        (self.folder / "text.txt").write_text("a line to learn from\n" * 2000)
        self._key = make_servers_key(self.folder)
        for name in ("ann", "bob") if self.store else ("ann",):
            self._computers[name] = self._new_computer(name)
            self._set_up(name)

    def play(self) -> None:
        """Play the history, then end everything as the documentation says and judge what is left."""
        watching = threading.Thread(target=self._watch)
        watching.start()
        try:
            self._command("ann", COMMANDS[self._random.randrange(3)])
            for _ in range(self._random.randint(3, 6)):
                name = self._random.choice([*self._computers])
                if self._random.random() < 0.5:
                    self._random.choice(self._losses())(name)
                if self.other is not None and self._random.random() < 0.2:
                    self._command(name, self._random.choice(FOREIGN), self.other.env)
                self._command(name, self._random.choice(COMMANDS))
            self._end()
        finally:
            self._over.set()
            watching.join()
            self._stop_processes()
        self._judge_checkpoints()

    # --- computers --------------------------------------------------------------------------------------------

    def _new_computer(self, name: str) -> Orch:
        place = self.folder / name
        place.mkdir()
        resources = "{accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}"
        if isinstance(self.cloud, SimulatedAws):
            resources = "{accelerators: 'H100:1', infra: aws/us-east-1}"
        (place / "two.yaml").write_text(
            TASK % (
                resources, self._bucket, self.folder / "started", f"{TESTS.parent}:{TESTS}", sys.executable,
                self._steps, self.folder / "text.txt",
            )
        )  # fmt: skip
        shared = name_server(self.store, self._key, name.rstrip("2")) if self.store else {}
        return Orch(place, {**self.cloud.env, **shared})

    def _set_up(self, name: str) -> None:
        if isinstance(self.cloud, SimulatedAws):
            self._computers[name]("config", "set", "aws.instance_profile", "orch-host")

    @property
    def _bucket(self) -> Path:
        bucket = self.folder / "bucket"
        bucket.mkdir(exist_ok=True)
        return bucket

    def _home(self, name: str) -> Path:
        return self._computers[name].folder / "orch"

    # --- losses -----------------------------------------------------------------------------------------------

    def _losses(self) -> list[Callable[[str], None]]:
        return [self.lose, self.keep_a_copy, self.restore_the_copy, self.copy_to_another_computer, self.damage]

    def lose(self, name: str) -> None:
        """The state folder is deleted: the person begins again on a new computer."""
        shutil.rmtree(self._home(name), ignore_errors=True)
        self._count("state folders deleted", name)
        self._set_up(name)

    def keep_a_copy(self, name: str) -> None:
        """A copy is kept, as a backup program makes it."""
        kept = self.folder / f"kept-{name}"
        shutil.rmtree(kept, ignore_errors=True)
        copy_tree(self._home(name), kept)
        self._note(f"{name}: a copy of the state folder is kept")

    def restore_the_copy(self, name: str) -> None:
        """The state folder is replaced by an older copy."""
        kept = self.folder / f"kept-{name}"
        if not kept.exists():
            self.keep_a_copy(name)
            return
        shutil.rmtree(self._home(name), ignore_errors=True)
        copy_tree(kept, self._home(name))
        self._count("state folders restored from an old copy", name)

    def copy_to_another_computer(self, name: str) -> None:
        """A second computer works with a copy of the state folder."""
        if f"{name}2" in self._computers or name.endswith("2"):
            return
        self._computers[f"{name}2"] = self._new_computer(f"{name}2")
        copy_tree(self._home(name), self._home(f"{name}2"))
        self._count("state folders copied to another computer", name)

    def damage(self, name: str) -> None:
        """Bytes of one file are overwritten, or its end is lost; most often of the database."""
        state = self._computers[name].state
        files = sorted(file for file in state.rglob("*") if file.is_file())
        databases = [file for file in files if file.name.startswith("orch.db")]
        chosen = databases if databases and self._random.random() < 0.7 else files
        if not chosen:
            return
        file = self._random.choice(chosen)
        with contextlib.suppress(OSError):
            size = file.stat().st_size
            if self._random.random() < 0.5:
                os.truncate(file, self._random.randint(0, size))
            else:
                with file.open("r+b") as opened:
                    opened.seek(self._random.randint(0, size))
                    opened.write(self._random.randbytes(self._random.choice((1, 100, 5000))))
            self._count("files damaged", f"{name}: {file.relative_to(state)}")

    # --- commands ---------------------------------------------------------------------------------------------

    def _command(self, name: str, words: tuple[str, ...], other: Mapping[str, str] | None = None) -> None:
        words = self._with_run(words)
        recorded = self._recorded()
        before = intents_of(self.cloud)
        output = self.folder / f"output-{name}"
        with output.open("wb") as written:
            orch = self._computers[name]
            process = subprocess.Popen(
                orch.command(*words), env={**orch.env, **(other or {})}, cwd=orch.folder,
                stdin=subprocess.DEVNULL, stdout=written, stderr=written,
            )  # fmt: skip
        self.counts["commands"] += 1
        lost = False
        if other is not None:
            self.counts["commands of another account"] += 1
        elif self._random.random() < 0.3:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._random.uniform(0.3, 6.0))
            if self._random.random() < 0.5:
                process.kill()
                self.counts["kills"] += 1
            self._random.choice(self._losses())(name)
            lost = True
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.counts["given up"] += 1
            process.kill()
        status, said = process.wait(), output.read_text(errors="replace")
        what = f"{name}{', other account' if other else ''}: {' '.join(words)}"
        self._note(f"{what}: exit {status}: {said.strip().splitlines()[-1][:150] if said.strip() else ''}")
        if "Traceback" in said or status not in KNOWN_STATUSES:
            self.violations.append(f"{what}: exit {status}: {said[-2000:]}")
        ended = before - intents_of(self.cloud)
        if (words[0] in ("reap", "status", "recover", "exec") or other) and (wrong := ended & recorded):
            self.violations.append(f"{what}: ended machines of open records: {wrong}")
        self._follow_advice(name, said, stale=lost)

    def _with_run(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Replace RUN by a run of the bucket, which the person trusts."""
        if "RUN" not in words:
            return words
        runs = sorted(path.name for path in self._bucket.iterdir() if path.is_dir())
        run = self._random.choice(runs) if runs else CLUSTER
        more = ("--bucket", f"file://{self._bucket}", "--trust-bucket", "--allow", str(self.folder))
        return tuple(run if word == "RUN" else word for word in words) + more

    def _follow_advice(self, name: str, said: str, *, stale: bool = False) -> None:
        """Run the command that a message about the store proposes; of several, the one for what happened here.

        Where the message is older than a loss (`stale`), the command may be refused, and what that proposes must work.
        """
        found = ADVICE.findall(said)
        if not found:
            return
        fitting = "orch store copied" if name.endswith("2") else "orch store restored"
        orch, command = self._computers[name], fitting if fitting in found else found[0].strip()
        self._note(f"{name}: as proposed: {command}")
        self.counts["proposed commands followed"] += 1
        words = (
            [*orch.command(*command.split()[1:]), "--yes"] if command.startswith("orch ") else ["bash", "-c", command]
        )
        done = subprocess.run(words, env=orch.env, cwd=orch.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0 and stale and ADVICE.search(done.stderr):
            self._follow_advice(name, done.stderr)
        elif done.returncode != 0:
            self.violations.append(f"{name}: as proposed: {command}: exit {done.returncode}: {done.stderr[-1000:]}")

    def _clusters(self, orch: Orch) -> set[str]:
        """Return the cluster of this history and those on record: a name that another member has gets a suffix."""
        with (
            contextlib.suppress(OrchError, OSError),
            open_reader_at(self.store or orch.state / "orch.db") as reader,
        ):
            return {CLUSTER, *(one.name for one in reader.clusters())}
        return {CLUSTER}

    def _recorded(self) -> set[str]:
        """Return the intents of all open records of all computers that can be read."""
        found: set[str] = set()
        for orch in self._computers.values():
            with (
                contextlib.suppress(OrchError, OSError),
                open_reader_at(self.store or orch.state / "orch.db") as reader,
            ):
                for cluster in reader.clusters():
                    open_ones = [one for one in reader.intents(cluster) if one.state not in FINAL_STATES]
                    found |= {f"{cluster.uid}-{one.generation}" for one in open_ones}
        return found

    # --- the end ----------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """List, then end what is on record, sweep, and end what is on no record, from each computer."""
        self._stop_processes()
        seen = {one["intent"] for name in self._computers for one in self._recoverable(name)}
        if lost := intents_of(self.cloud) - seen - self._recorded():
            self.violations.append(f"lost: {lost}: no record and no list of `recover` has it")
        for name, orch in self._computers.items():
            self._command(name, ("status",))
            for cluster in self._clusters(orch):
                self.violations += take_down(orch, cluster, "--yes", "--force")
            orch("reap", "--yes")
        for name in self._computers:
            for one in self._recoverable(name):
                if one["record"] != "open" and one["state"] != "ending":
                    done = self._computers[name]("recover", one["cluster"], "--end", "--intent", one["intent"], "--yes")
                    self.counts["machines ended by recover"] += 1
                    if done.returncode != 0:
                        self.violations.append(f"{name}: recover --end of {one['name']}: {done.stderr[-1000:]}")
        time.sleep(3)
        if left := intents_of(self.cloud):
            self.violations.append(f"machines are left: {left}")

    def _recoverable(self, name: str) -> list[dict[str, Any]]:
        done = self._computers[name]("recover", "-o", "json")
        try:
            places = json.loads(done.stdout)["places"]
        except (ValueError, KeyError):
            self._follow_advice(name, done.stdout + done.stderr)
            self._note(f"{name}: recover: exit {done.returncode}: {done.stderr[-300:]}")
            return []
        return [one for place in places for one in place["slices"]]

    def _stop_processes(self) -> None:
        """End the engines of computers: the person's day ends, or the computer is lost."""
        for name in self._computers:
            for pid in processes_of(f"{self._home(name)}"):
                send_signal(pid, signal.SIGKILL)
                self.counts["engines killed"] += 1

    # --- judgement --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Note every complete checkpoint, and two machines of one intent."""
        while not self._over.wait(0.3):
            self._manifests |= {path: path.read_bytes() for path in self._found_manifests()}
            running = Counter(intent for intent, phase in living(self.cloud) if phase is not Phase.ENDING)
            if doubled := [intent for intent, count in running.items() if count > 1]:
                self.violations.append(f"doubled: {doubled}")
            if self.other is not None and (stray := list(living(self.other))):
                self.violations.append(f"made in the other account: {stray}")

    def _found_manifests(self) -> Iterator[Path]:
        return (path for path in self._bucket.glob("*/checkpoints/step-*/manifest.json") if path not in self._manifests)

    def _judge_checkpoints(self) -> None:
        """Compare every checkpoint that ever was complete with the bucket: its manifest, and the size of its parts."""
        for path, text in self._manifests.items():
            self.counts["checkpoints"] += 1
            if not path.exists() or path.read_bytes() != text:
                self.violations.append(f"the manifest {path} was changed or deleted")
                continue
            folder = StepFolder.parse(path.parent.name)
            assert folder is not None
            try:
                parts = Manifest.from_json(text, folder).parts
                whole = all((path.parent / part.name).stat().st_size == part.size for part in parts)
            except (CorruptCheckpoint, OSError) as error:
                self.violations.append(f"{path}: {error}")
                continue
            if not whole:
                self.violations.append(f"a part of {path} is damaged")

    def _count(self, what: str, name: str) -> None:
        self.counts[what] += 1
        self._note(f"{name}: {what}")

    def _note(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self._began:6.1f} {what}")


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder in which processes may work: what is deleted meanwhile is left out."""
    if source.exists():
        with contextlib.suppress(shutil.Error):
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def living(cloud: Cloud) -> Iterator[tuple[str, Phase]]:
    """Yield intent and phase of the machines that exist."""
    with cloud.cloud.open() as opened:
        found = [(look.labels.get(INTENT, look.name), look.phase) for look in opened.live()]
    yield from found


def intents_of(cloud: Cloud) -> set[str]:
    """Return the intents of the machines that exist and are not ending."""
    return {intent for intent, phase in living(cloud) if phase not in (Phase.ENDING, Phase.FAILED)}
