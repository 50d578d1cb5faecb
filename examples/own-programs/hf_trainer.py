"""Hugging Face's Trainer with orch_run: its checkpoints go to the bucket, complete, and a restart resumes from them."""

import os
import tempfile
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import orch_run
from orch_run.hf import OrchCallback, restore


class Pause(TrainerCallback):
    """A rehearsal takes a while to notice a step."""

    def on_step_end(self, *_, **__):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, inputs, labels):
        return {"loss": (self.layers(inputs) - labels).square().mean()}


run = orch_run.init()
torch.manual_seed(0)
inputs = torch.randn(512, 16)
rows = [{"inputs": row, "labels": row.sum(0, keepdim=True)} for row in inputs]
settings = TrainingArguments(
    tempfile.mkdtemp(), max_steps=60, per_device_train_batch_size=8, save_steps=10, save_total_limit=2, logging_steps=1,
    use_cpu=True, report_to=[], disable_tqdm=True, seed=0,
)  # fmt: skip
callback = OrchCallback(run)
trainer = Trainer(Model(), settings, train_dataset=rows, callbacks=[callback, Pause()])
trainer.train(resume_from_checkpoint=restore(run, "restored"))
run.wait()
if callback.stopped:
    raise SystemExit(orch_run.STOPPED)
if run.rank == 0:
    weights = sum(weight.double().sum().item() for weight in trainer.model.parameters())
    loss = trainer.state.log_history[-2]["loss"]
    print(f"done: step {trainer.state.global_step}, loss {loss}, weights {weights}", flush=True)
