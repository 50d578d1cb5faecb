"""FSDP2 with torch's distributed checkpoints (DCP): every rank saves its shard; resumes on another number of ranks.

Alone:  torchrun --nproc-per-node 2 torch_dcp.py
"""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import orch_run
from orch_run.dcp import Writer, load

STEPS, EVERY, ROWS = 40, 10, 8

run = orch_run.init()
dist.init_process_group("gloo", rank=run.rank, world_size=run.world)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
fully_shard(model, mesh=init_device_mesh("cpu", (run.world,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def state():
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


restored = state()
step = load(run, restored, "restored") or 0
if step:
    set_state_dict(model, optimizer, model_state_dict=restored["model"], optim_state_dict=restored["optimizer"])

while step < STEPS:
    rows = torch.Generator().manual_seed(step)
    inputs = torch.randn(ROWS, 16, generator=rows)  # all ranks use the same rows here, so their number changes nothing
    loss = (model(inputs) - inputs[:, :4]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stop = torch.tensor(float(run.should_stop()))
    dist.all_reduce(stop)
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
    step += 1
    run.heartbeat(step, {"loss": loss.item()})
    if step % EVERY == 0 or stop or step == STEPS:
        dcp.save(state(), storage_writer=Writer(run, step, {"loss": loss.item()}))
    if stop and step < STEPS:
        run.wait()
        raise SystemExit(orch_run.STOPPED)
run.wait()
if run.rank == 0:
    print(f"done: step {step}, loss {run.latest().meta['loss']}", flush=True)
dist.destroy_process_group()
