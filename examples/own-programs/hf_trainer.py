"""Hugging Face's Trainer with orch_run: its checkpoints go to the bucket, complete, and a restart resumes from them."""

import os
import tempfile
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import orch_run


class Uploads(TrainerCallback):
    """Gives each checkpoint that the Trainer has written to orch_run."""

    def __init__(self, run):
        self.run = run

    def on_step_end(self, args, state, control, **_):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        self.run.heartbeat(state.global_step)
        if self.run.should_stop():
            control.should_save = control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in (logs or {}):
            self.run.heartbeat(state.global_step, {"loss": logs["loss"]})

    def on_save(self, args, state, control, **_):
        # With FSDP or DeepSpeed every rank has other files: sharded=True.
        self.run.save(f"{args.output_dir}/checkpoint-{state.global_step}", state.global_step)


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
trainer = Trainer(Model(), settings, train_dataset=rows, callbacks=[Uploads(run)])
step = run.restore("restored")
trainer.train(resume_from_checkpoint="restored" if step else None)
run.wait()
if run.should_stop() and trainer.state.global_step < settings.max_steps:
    raise SystemExit(orch_run.STOPPED)
if run.rank == 0:
    print(f"done: step {trainer.state.global_step}, loss {trainer.state.log_history[-2]['loss']}", flush=True)
