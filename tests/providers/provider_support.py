"""Slices for tests: keys, specs, real SSH to their hosts, and a look at the processes they consist of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.local import processes
from orchestrator.providers.local.layout import HostFolder, SlicePaths
from orchestrator.providers.local.provider import LocalProvider, open_provider
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, SliceState
from orchestrator.values import Text

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLATION = "installation-of-the-tests"

_ASK = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from orchestrator.providers.local.provider import open_provider
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec
from orchestrator.values import Text
verb, order = sys.argv[2], json.loads(Path(sys.argv[3]).read_text())
keys = order["keys"] | {k: tuple(order["keys"][k]) for k in ("host_private", "host_public")}
candidate = Candidate(provider="local", accelerator="cpu", hosts=order["hosts"], chips_per_host=0, market=OnDemand())
spec = SliceSpec(cluster=order["cluster"], name=order["name"], token=Text.of(order["token"]), candidate=candidate,
                 labels=tuple((key, Text.of(value)) for key, value in order["labels"]))
provider = open_provider(Path(order["state"]))
print("ready", flush=True)
if verb == "create":
    provider.create(spec, SliceKeys(**keys))
else:
    getattr(provider, verb)(order["name"])
print(provider.observe(order["name"]).state, flush=True)
"""


def make_keys(folder: Path, hosts: int) -> SliceKeys:
    folder.mkdir(parents=True, exist_ok=True)
    private, public = make_host_key()
    identity = folder / "id_ed25519"
    identity.touch(mode=0o600)
    identity.write_text(private)
    pairs = [make_host_key() for _ in range(hosts)]
    return SliceKeys(
        user_public=public,
        identity_file=str(identity),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(pair[0] for pair in pairs),
        host_public=tuple(pair[1] for pair in pairs),
    )


def make_spec(
    name: str = "demo-1", hosts: int = 2, token: str = "token-1", candidate: Candidate | None = None
) -> SliceSpec:
    return SliceSpec(
        cluster=name.rpartition("-")[0] or name,
        name=name,
        token=Text.of(token),
        candidate=candidate
        or Candidate(provider="local", accelerator="cpu", hosts=hosts, chips_per_host=0, market=OnDemand()),
        labels=(("orch-installation", Text.of(INSTALLATION)), ("orch-cluster", Text.of("demo"))),
    )


@dataclass(frozen=True, slots=True)
class LocalWorld:
    """A state folder of its own, and one slice that may be made in it."""

    folder: Path
    state: Path
    provider: LocalProvider
    spec: SliceSpec
    keys: SliceKeys

    @property
    def paths(self) -> SlicePaths:
        return slice_paths(self.state, self.spec)

    def host(self, rank: int) -> HostFolder:
        return self.paths.host(rank)

    def up(self) -> tuple[HostAddress, ...]:
        """Create the slice; its hosts, with their keys pinned."""
        self.provider.create(self.spec, self.keys)
        return self.hosts()

    def hosts(self) -> tuple[HostAddress, ...]:
        view = self.provider.observe(self.spec.name)
        assert view.state is SliceState.READY, view
        pin(view.hosts)
        return view.hosts

    @property
    def seen(self) -> SliceState:
        return self.provider.observe(self.spec.name).state

    def processes(self) -> dict[int, str]:
        return living(f"{self.state}/")


def make_world(folder: Path, hosts: int = 2, state_name: str = "state") -> LocalWorld:
    state = folder / state_name
    return LocalWorld(folder, state, open_provider(state), make_spec(hosts=hosts), make_keys(folder / "keys", hosts))


def clear(world: LocalWorld) -> None:
    """Whatever a failed test has left, without the code under test."""
    for pid in world.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Asked:
    """A provider asked by a process of its own, which may be killed."""

    argv: tuple[str, ...]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *prefix: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*prefix, *self.argv], capture_output=True, text=True, timeout=60, check=False)


def asked(
    verb: str, state: Path, spec: SliceSpec, keys: SliceKeys, folder: Path, python: str = sys.executable
) -> Asked:
    order = {
        "state": str(state),
        "cluster": spec.cluster,
        "name": spec.name,
        "token": spec.token.reveal(),
        "hosts": spec.candidate.hosts,
        "keys": asdict(keys),
        "labels": [(key, value.reveal()) for key, value in spec.labels],
    }
    path = folder / f"order-{verb}.json"
    path.write_text(json.dumps(order))
    return Asked((python, "-c", _ASK, str(REPOSITORY), verb, str(path)))


def pin(hosts: Sequence[HostAddress]) -> None:
    write_known_hosts(hosts[0].known_hosts, hosts)


def on_host(
    host: HostAddress, command: str, *, prefix: Sequence[str] = (), options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """One command over the system's own ssh, nothing of the user's configuration."""
    argv = ssh_argv(host, command)
    argv[1:1] = ["-F", "none", "-o", "BatchMode=yes", *options]
    return subprocess.run([*prefix, *argv], capture_output=True, text=True, timeout=30, check=False)


def leave_on_host(host: HostAddress, command: str) -> int:
    """Start a command that goes on after its session; returns its pid as seen from here."""
    done = on_host(host, f"{command} >/dev/null 2>&1 </dev/null & echo $!")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def slice_paths(state: Path, spec: SliceSpec) -> SlicePaths:
    return SlicePaths(state / "local" / spec.name)


def living(text: str) -> dict[int, str]:
    """Command lines with `text` in them, by pid; the dead that nobody has reaped do not count."""
    found: dict[int, str] = {}
    for pid, process in processes.snapshot().items():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and not process.zombie and pid != os.getpid():
            found[pid] = command
    return found


def is_alive(pid: int) -> bool:
    process = processes.find(pid)
    return process is not None and not process.zombie


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until it holds; the limit is only there so that a failure ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
