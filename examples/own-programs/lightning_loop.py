"""PyTorch Lightning with orch_run: its checkpoints go to the bucket, complete, and a restart resumes from them."""

import os
import time

import lightning
import torch

import orch_run
from orch_run.lightning import OrchCallback, restore


class Rows:
    """A loader that keeps its position, which a plain DataLoader does not: torchdata's StatefulDataLoader does, too."""

    def __init__(self, rank):
        self.rank, self.step = rank, 0

    def __len__(self):
        return 60

    def __iter__(self):
        while self.step < len(self):
            self.step += 1
            yield torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * self.step + self.rank))
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, rows):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
        return (self.layers(rows) - rows.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


run = orch_run.init()
lightning.seed_everything(0)
callback = OrchCallback(run, every=10)
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[callback], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, devices=1, num_nodes=run.world,
)  # fmt: skip
model = Model()
trainer.fit(model, Rows(run.rank), ckpt_path=restore(run, "restored"), weights_only=True)
run.wait()
if callback.stopped:
    raise SystemExit(orch_run.STOPPED)
if run.rank == 0:
    weights = sum(weight.double().sum().item() for weight in model.parameters())
    print(f"done: step {trainer.global_step}, weights {weights}", flush=True)
