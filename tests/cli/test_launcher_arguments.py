"""The arguments of a person win over what orch gives a launcher, and no form of torchrun hangs for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.launcher_clusters import LauncherCluster, apart, launcher_cluster, together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STATIC = "--nnodes $ORCH_NUM_HOSTS --node_rank $ORCH_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
C10D = "--nnodes $ORCH_NUM_HOSTS --rdzv-id 7 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
BY_SUBPROCESS = "import subprocess, sys; sys.exit(subprocess.call(['torchrun', '--standalone', 'show.py']))"
PROGRAMS = {
    "train_sh": "#!/bin/sh\nexec torchrun --nproc-per-node=2 show.py --nnodes 7\n",
    "alone_sh": "#!/bin/sh\nexec torchrun --standalone show.py\n",
    "starts_py": BY_SUBPROCESS,
    "tune_py": "from torch.distributed.run import main; main(['show.py'])",
}
RESTARTS = "torchrun --max-restarts 1 show.py"
TOGETHER = {
    "none": "torchrun show.py",
    "count": "torchrun --nnodes $SKYPILOT_NUM_NODES show.py",
    "static": f"torchrun {STATIC} show.py",
    "c10d": f"torchrun {C10D} show.py",
    "module": "python -m torch.distributed.run -m show",
    "own-path": "PYTHONPATH=$PWD torchrun show.py",
    "own-process": "python tune.py",
}
APART = {
    "standalone": "torchrun --standalone show.py",
    "one": "torchrun --nnodes 1 show.py",
    "one-joined": "torchrun --nnodes=1:1 --max-restarts=0 show.py",
    "module-one": "python -m torch.distributed.run --nnodes=1 show.py",
    "own-rendezvous": "torchrun --rdzv-backend c10d --rdzv-endpoint localhost:0 show.py",
    "own-head": "torchrun --master_addr 127.0.0.1 --master_port 1$((2000 + ORCH_RANK)) show.py",
    "variable": "PET_NNODES=1 torchrun show.py",
    "script": "sh alone.sh",
    "subprocess": "python starts.py",
    "python": "python show.py",
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherCluster]:
    with launcher_cluster(tmp_path_factory.mktemp("one"), 1, **PROGRAMS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherCluster]:
    with launcher_cluster(tmp_path_factory.mktemp("two"), 2, **PROGRAMS) as cluster:
        yield cluster


@pytest.mark.parametrize("form", TOGETHER)
def test_without_words_about_hosts_all_hosts_train_together(two: LauncherCluster, form: str) -> None:
    found = two.seen(TOGETHER[form])
    if form == "c10d":  # the order of the hosts is torch's then
        assert [line.split(" on ")[0] for line in found] == ["seen 0 of 2", "seen 1 of 2"]
        assert {line.split(" on ")[1] for line in found} == {"0", "1"}
    else:
        assert found == together(2)
    two.check_failure(TOGETHER[form])


def test_a_restart_reaches_all_hosts(two: LauncherCluster) -> None:
    """The order of the hosts is torch's then. Hosts in their own order do not hear of it, and hang (torch 2.13)."""
    assert [line.split(" on ")[0] for line in two.seen(RESTARTS)] == ["seen 0 of 2", "seen 1 of 2"]
    done = two.run(RESTARTS, "--env", "FAILS_ON=1")
    assert done.returncode != 0, done.stdout
    assert len(re.findall(r"seen \d of 2", done.stdout)) == 4, "once, and once again"


@pytest.mark.parametrize("form", APART)
def test_with_words_for_one_host_each_trains_alone(two: LauncherCluster, form: str) -> None:
    assert two.seen(APART[form]) == apart(2)


@pytest.mark.parametrize("form", ["standalone", "one", "module-one", "python"])
def test_a_host_that_fails_alone_ends_the_job(two: LauncherCluster, form: str) -> None:
    two.check_failure(APART[form])


def test_words_of_the_program_are_not_those_of_torchrun(two: LauncherCluster) -> None:
    assert two.seen("sh train.sh") == together(2, each=2)


def test_a_launcher_within_a_process_of_another_is_alone(two: LauncherCluster) -> None:
    """A rank that starts torchrun, for an evaluation, does not wait for the hosts of the others."""
    assert two.seen("LOCAL_RANK=0 torchrun show.py") == apart(2)


def test_on_one_host_every_form_is_one_process(one: LauncherCluster) -> None:
    forms = ["set -e", RESTARTS, TOGETHER["none"], TOGETHER["static"], APART["standalone"], APART["python"]]
    assert one.seen("\n".join(forms)) == together(1) * 5


def test_no_processes_are_refused_with_the_reason(one: LauncherCluster) -> None:
    done = one.run("torchrun --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE show.py")
    assert done.returncode == 2
    assert "0 processes (--nproc-per-node): SKYPILOT_NUM_GPUS_PER_NODE counts GPUs alone" in done.stderr, done.stderr
    assert "run: SKYPILOT_NUM_GPUS_PER_NODE is 0 on local:1, which has no GPUs" in done.stderr, done.stderr
