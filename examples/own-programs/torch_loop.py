"""A plain PyTorch loop that resumes: rank 0 saves, every rank restores. Runs alone, with torchrun, and under orch."""

import os
import time

import torch
import torch.distributed as dist

import orch_run

STEPS, EVERY, ROWS = 60, 10, 8

run = orch_run.init()
if run.world > 1:  # MASTER_ADDR and MASTER_PORT are set by orch and by torchrun
    dist.init_process_group("gloo", rank=run.rank, world_size=run.world)
torch.manual_seed(0)  # the same model on every rank
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

step = run.restore("restored") or 0
if step:
    state = torch.load("restored/state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])

while step < STEPS:
    rows = torch.Generator().manual_seed(1000 * step + run.rank)  # the data of a step depends on nothing else
    inputs = torch.randn(ROWS, 16, generator=rows)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    stop = torch.tensor(float(run.should_stop()))
    if run.world > 1:
        # One rank that was asked to stop stops all, at the same step.
        for number in (stop, loss.detach(), *(p.grad for p in model.parameters())):
            dist.all_reduce(number)
            number.div_(run.world)
    optimizer.step()
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
    step += 1
    run.heartbeat(step, {"loss": loss.item()})
    if step % EVERY == 0 or stop or step == STEPS:
        folder = run.new_folder()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
        run.save(folder, step, {"loss": loss.item()})
    if stop and step < STEPS:
        run.wait()  # until the checkpoint is in the bucket
        raise SystemExit(orch_run.STOPPED)  # orch starts it again, and it resumes
run.wait()
if run.rank == 0:
    print(f"done: step {step}, loss {run.latest().meta['loss']}", flush=True)
