"""A loop with Hugging Face's accelerate: `save_state` and `load_state` go to the bucket, complete."""

import os
import time

import torch
from accelerate import Accelerator

import orch_run

STEPS, EVERY, ROWS = 60, 10, 8

run = orch_run.init()
accelerator = Accelerator(cpu=True)  # without `cpu=True` on GPUs
torch.manual_seed(0)  # the same model on every rank
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))

step = run.restore("restored") or 0
if step:
    accelerator.load_state("restored")

while step < STEPS:
    rows = torch.Generator().manual_seed(1000 * step + run.rank)  # the data of a step depends on nothing else
    inputs = torch.randn(ROWS, 16, generator=rows)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
    step += 1
    # One rank that was asked to stop stops all, at the same step.
    loss, stop = accelerator.reduce(
        torch.stack([loss.detach(), torch.tensor(float(run.should_stop()))]), "mean"
    ).tolist()
    run.heartbeat(step, {"loss": loss})
    if step % EVERY == 0 or stop or step == STEPS:
        folder = run.new_folder()  # each rank's own: rank 0 writes the model, and each its random numbers
        accelerator.save_state(folder)
        run.save(folder, step, {"loss": loss}, sharded=True)
    if stop and step < STEPS:
        run.wait()
        raise SystemExit(orch_run.STOPPED)
run.wait()
if run.rank == 0:
    print(f"done: step {step}, loss {run.latest().meta['loss']}", flush=True)
accelerator.end_training()
