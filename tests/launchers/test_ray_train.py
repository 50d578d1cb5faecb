"""Ray Train as people start it, on one host and over two: its end and its status are those of the program."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.launcher_clusters import LauncherCluster, install_or_skip, launcher_cluster

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1200)]

# The last worker of a world writes what all have seen: lines that workers print may come after the end.
TRAIN = """
import os, sys
import ray.train
import torch, torch.distributed as dist
from ray.train.torch import TorchTrainer

def loop(config):
    here, host = ray.train.get_context(), os.environ["ORCH_RANK"]
    total, lines = torch.ones(1), [""] * here.get_world_size()
    dist.all_reduce(total)  # a world that does not really meet does not end
    dist.all_gather_object(lines, f"seen a worker of {int(total)} on {host}")
    with open(config["seen"], "w") as seen:
        seen.write("\\n".join(lines) + "\\n")
    if os.environ.get("FAILS_ON") == host:
        os.kill(os.getpid(), 9) if "KILLED" in os.environ else sys.exit(3)
    dist.barrier()

seen, workers = os.path.abspath("seen"), ray.train.ScalingConfig(num_workers=2)
TorchTrainer(loop, train_loop_config={"seen": seen}, scaling_config=workers).fit()
print(open(seen).read())
"""
# docs/own-programs.md#ray has it, without what makes Ray small and patient: this computer may have two cores, and a
# node of Ray is several programs, each of which imports Ray.
ONE_HOST = "PYTHONPATH=$RAY_SITE:$PYTHONPATH python train.py"
SMALL = "--num-cpus 1 --object-store-memory 100000000"
TWO_HOSTS = f"""
set -e
export PYTHONPATH=$RAY_SITE:$PYTHONPATH PATH=$RAY_SITE/bin:$PATH
if [ "$ORCH_RANK" = 0 ]; then
  trap 'ray stop --force >stopped' EXIT
  ray start --head --node-ip-address "$MASTER_ADDR" --port "$MASTER_PORT" --include-dashboard false {SMALL}
  python train.py
else
  own=$(printf '%s\\n' $ORCH_HOST_IPS | sed -n "$((ORCH_RANK + 1))p")
  until ray start --address "$ORCH_COORDINATOR" --node-ip-address "$own" {SMALL}; do sleep 2; done
  while (: </dev/tcp/"$MASTER_ADDR"/"$MASTER_PORT") 2>/dev/null; do sleep 2; done
fi
"""
PATIENT = {
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_gcs_rpc_server_connect_timeout_s": "300",
    "RAY_health_check_timeout_ms": "300000",
    "RAY_agent_register_timeout_ms": "600000",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with Ray, which is no dependency of ours: 92 MB, unpacked 330 MB, in about 50 s."""
    folder = tmp_path_factory.mktemp("ray")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "site")
    install_or_skip(folder, *pip, "ray==2.60.0", "pandas==3.1.1", "python-dateutil", "six")
    yield folder / "site"
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class RayCluster:
    """A cluster of orch, and the variables with which Ray runs there."""

    cluster: LauncherCluster
    words: tuple[str, ...]

    def run(self, script: str, *variables: str) -> subprocess.CompletedProcess[str]:
        given = [word for variable in variables for word in ("--env", variable)]
        return self.cluster.run(script, *self.words, *given, timeout=1000)

    def check_failure(self, script: str) -> None:
        """Let the workers of the last host fail, and read the status that Ray reports of them."""
        done = self.run(script, f"FAILS_ON={self.cluster.hosts - 1}")
        assert done.returncode == 3 and "why:  SystemExit: 3\n" in done.stderr, done.stdout + done.stderr


def cluster_of(folder: Path, site: Path, hosts: int) -> Iterator[RayCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as short,
        launcher_cluster(folder, hosts, train_py=TRAIN) as cluster,
    ):
        variables = {"RAY_TMPDIR": short, "RAY_AUTH_MODE": "token", **PATIENT}  # names of Unix sockets are short
        given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        secret = ("--secret", f"RAY_AUTH_TOKEN={secrets.token_hex(32)}")
        yield RayCluster(cluster, (*given, *secret, "--env", f"RAY_SITE={site}"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[RayCluster]:
    yield from cluster_of(tmp_path_factory.mktemp("one"), site, 1)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[RayCluster]:
    yield from cluster_of(tmp_path_factory.mktemp("two"), site, 2)


def seen(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r"seen .*", done.stdout))


def test_workers_of_one_host(one: RayCluster) -> None:
    assert seen(one.run(ONE_HOST)) == ["seen a worker of 2 on 0"] * 2
    one.check_failure(ONE_HOST)


def test_a_worker_that_is_killed_is_named_and_has_no_status(one: RayCluster) -> None:
    done = one.run(ONE_HOST, "FAILS_ON=0", "KILLED=1")
    assert done.returncode == 1 and "why:  ray.exceptions.ActorDiedError: " in done.stderr, done.stdout + done.stderr


def test_two_hosts_train_together_and_end(two: RayCluster) -> None:
    assert seen(two.run(TWO_HOSTS)) == ["seen a worker of 2 on 0", "seen a worker of 2 on 1"]
    two.check_failure(TWO_HOSTS)
