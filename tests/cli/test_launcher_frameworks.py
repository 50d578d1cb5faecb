"""accelerate, Lightning, Fabric, DeepSpeed and mpirun as people start them: together where asked, alone where not."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from support.launcher_clusters import LauncherCluster, apart, install_or_skip, launcher_cluster, together

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(500)]

LIGHTNING = """
import os, sys
import lightning, torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        if os.environ.get("FAILS_ON") == os.environ["ORCH_RANK"]:
            os._exit(3)
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=4)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=int(sys.argv[1]), strategy="ddp", max_epochs=1, **quiet
)
trainer.fit(Model(), rows)
print(f"seen {trainer.global_rank} of {trainer.world_size} on {os.environ['ORCH_RANK']}", flush=True)
os._exit(0)  # on a loaded machine the threads of gloo abort an orderly end now and then (torch 2.13)
"""
FABRIC = """
import os, sys, time
import lightning, torch

fabric = lightning.Fabric(accelerator="cpu", devices=1, num_nodes=int(sys.argv[1]), strategy="ddp")
fabric.launch()
total = int(fabric.all_reduce(torch.ones(1), reduce_op="sum"))
print(f"seen {fabric.global_rank} of {total} on {os.environ['ORCH_RANK']}", flush=True)
if os.environ.get("FAILS_ON") == os.environ["ORCH_RANK"]:
    os._exit(3)
fabric.barrier()
time.sleep(float(os.environ.get("STAYS", "0")))
os._exit(0)
"""
MPI = """
import os

rank, total = (os.environ[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "SIZE"))
os.write(1, f"seen {rank} of {total} on {os.environ['ORCH_RANK']}\\n".encode())  # in one piece: two processes write
"""
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 0
num_machines: 1
num_processes: 2
use_cpu: false
"""
EACH = "env -u NODE_RANK -u MASTER_ADDR -u MASTER_PORT"
MACHINES = (
    "--num_machines $ORCH_NUM_HOSTS --num_processes $ORCH_NUM_HOSTS --machine_rank $ORCH_RANK "
    "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"
)
TOGETHER = {
    "accelerate": f"accelerate launch --multi_gpu {MACHINES} show.py",
    "accelerate-module": f"python -m accelerate.commands.launch --multi_gpu {MACHINES} show.py",
    "lightning": "python lightning_loop.py $ORCH_NUM_HOSTS",
    "fabric": "python fabric_loop.py $ORCH_NUM_HOSTS",
}
APART = {
    "accelerate": ("accelerate launch show.py", 1),
    "accelerate-cpu": ("accelerate launch --cpu show.py", 1),
    "accelerate-one": ("accelerate launch --multi_gpu --num_machines 1 --num_processes 2 show.py", 2),
    "accelerate-config": ("accelerate launch --config_file config.yaml show.py", 2),
    "lightning": (f"{EACH} python lightning_loop.py 1", 1),
    "fabric": (f"{EACH} python fabric_loop.py 1", 1),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherCluster]:
    folder = tmp_path_factory.mktemp("two")
    with launcher_cluster(folder, 2, config_yaml=CONFIG) as cluster:
        (folder / "program/lightning_loop.py").write_text(LIGHTNING)
        (folder / "program/fabric_loop.py").write_text(FABRIC)
        (folder / "program/mpi_show.py").write_text(MPI)
        yield cluster


@pytest.mark.parametrize("form", TOGETHER)
def test_hosts_that_the_person_names_train_together(two: LauncherCluster, form: str) -> None:
    assert two.seen(TOGETHER[form]) == together(2)
    two.check_failure(TOGETHER[form])


@pytest.mark.parametrize("form", APART)
def test_without_words_about_hosts_each_trains_alone(two: LauncherCluster, form: str) -> None:
    command, each = APART[form]
    assert two.seen(command) == apart(2, each)


@pytest.mark.parametrize("program", ["lightning_loop.py", "fabric_loop.py"])
def test_lightning_for_one_node_fails_soon_and_says_why(two: LauncherCluster, program: str) -> None:
    """The second of two hosts has NODE_RANK 1, which one node does not have; it does not wait for the first one."""
    done = two.run(f"python {program} 1", "--env", "STAYS=20")
    assert done.returncode != 0, done.stdout


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the start of a command line that runs DeepSpeed's launcher, which is no dependency of ours."""
    folder = tmp_path_factory.mktemp("deepspeed")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", "site")
    install_or_skip(
        folder, *pip, "deepspeed==0.19.8", "hjson==3.1.0", "py-cpuinfo==9.0.0", "msgpack", "einops", "ninja"
    )
    return f"PYTHONPATH={folder}/site:$PYTHONPATH DS_ACCELERATOR=cpu python -m deepspeed.launcher.runner"


def test_deepspeed(two: LauncherCluster, deepspeed: str) -> None:
    """Its launcher takes the place of a host from the options, and starts each host by itself with --no_ssh."""
    hostfile = "printf '%s slots=1\\n' $ORCH_HOST_IPS > hosts-$ORCH_RANK"
    together_words = "--no_ssh --node_rank $ORCH_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
    form = f"{hostfile}\n{deepspeed} -H hosts-$ORCH_RANK {together_words} show.py"
    assert two.seen(form) == together(2)
    two.check_failure(form)
    assert two.seen(f"{deepspeed} --num_gpus 1 --master_port $((12600 + ORCH_RANK)) show.py") == apart(2)


@pytest.fixture(scope="module")
def mpirun(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return mpirun of Debian's package, unpacked in a folder: nothing is installed on this computer."""
    folder = tmp_path_factory.mktemp("mpi")
    names = ("openmpi-bin", "openmpi-common", "libopenmpi3", "libhwloc15", "libpmix2", "libevent-core-2.1-7")
    names += ("libevent-pthreads-2.1-7", "libucx0", "libfabric1", "libpsm2-2", "libpsm-infinipath1", "librdmacm1")
    names += ("libibverbs1", "libmunge2", "libnl-3-200", "libnl-route-3-200", "ibverbs-providers", "libnuma1")
    install_or_skip(folder, "apt-get", "download", *names)
    for package in folder.glob("*.deb"):
        install_or_skip(folder, "dpkg", "-x", str(package), "root")
    root = folder / "root/usr"
    paths = ":".join(str(root / f"lib/x86_64-linux-gnu{end}") for end in ("", "/openmpi/lib", "/pmix2/lib"))
    settings = f"OPAL_PREFIX={root} LD_LIBRARY_PATH={paths}"
    return f"{settings} {root}/bin/orterun --allow-run-as-root --oversubscribe"


def test_mpirun(two: LauncherCluster, mpirun: str) -> None:
    """Each host starts its own processes; a program that takes rank and size from Open MPI is alone there."""
    assert two.seen(f"{mpirun} -np 2 python mpi_show.py") == apart(2, each=2)
    done = two.run(f"{mpirun} -np 2 bash -c 'exit 3'")
    assert done.returncode == 3, done.stdout + done.stderr
