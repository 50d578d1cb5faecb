"""`jax.distributed.initialize()` without arguments meets all hosts of a cluster; other launchers and arguments win."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.launcher_clusters import LauncherCluster, apart, launcher_cluster, together

pytestmark = [pytest.mark.jax, pytest.mark.slow, pytest.mark.timeout(300)]

INITIALIZES = """
import os
import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(**eval(os.environ.get("ARGUMENTS", "{}")))
if os.environ.get("FAILS_ON") == os.environ["ORCH_RANK"]:
    os._exit(3)  # an orderly exit waits for minutes in jax.distributed.shutdown, until the others have failed
total = jax.experimental.multihost_utils.process_allgather(jax.numpy.ones(1)).sum()
print(f"seen {jax.process_index()} of {int(total)} on {os.environ['ORCH_RANK']}", flush=True)
""".replace("import jax\n", "import jax, jax.experimental.multihost_utils\n")
ALONE = "ARGUMENTS=\"{'coordinator_address': '127.0.0.1:1$((3000 + ORCH_RANK))', 'num_processes': 1, 'process_id': 0}\""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherCluster]:
    with launcher_cluster(tmp_path_factory.mktemp("two"), 2, init_py=INITIALIZES) as cluster:
        yield cluster


def test_all_hosts_meet_without_arguments(two: LauncherCluster) -> None:
    assert two.seen("python init.py") == together(2)
    assert two.seen("python -c 'import init'") == together(2)
    two.check_failure("python init.py")


def test_arguments_of_the_program_win(two: LauncherCluster) -> None:
    assert two.seen(f"{ALONE} python init.py") == apart(2)


def test_a_single_host_needs_no_arguments_either(tmp_path_factory: pytest.TempPathFactory) -> None:
    with launcher_cluster(tmp_path_factory.mktemp("one"), 1, init_py=INITIALIZES) as one:
        assert one.seen("python init.py") == together(1)
