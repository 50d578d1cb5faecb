"""PyTorch Lightning with orch_run: its checkpoints go to the bucket, complete, and a restart resumes from them."""

import os
import time

import lightning
import torch

import orch_run


class Uploads(lightning.Callback):
    """Saves every 10 steps; Trainer.save_checkpoint is called on every rank, and rank 0 writes the file."""

    def __init__(self, run):
        self.run = run

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        step = trainer.global_step
        self.run.heartbeat(step, {"loss": outputs["loss"].item()})
        stop = trainer.strategy.reduce_boolean_decision(self.run.should_stop(), all=False)
        if step % 10 == 0 or stop:
            folder = self.run.new_folder()
            trainer.save_checkpoint(folder / "last.ckpt")
            self.run.save(folder, step, {"loss": outputs["loss"].item()})
        if stop:
            trainer.should_stop = True


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, rows):
        return (self.layers(rows) - rows.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


run = orch_run.init()
lightning.seed_everything(0)
loader = torch.utils.data.DataLoader(torch.randn(480, 16), batch_size=8)  # 60 steps, in order
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[Uploads(run)], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, num_nodes=int(os.environ.get("ORCH_NUM_HOSTS", "1")),
)  # fmt: skip
step = run.restore("restored")
trainer.fit(Model(), loader, ckpt_path="restored/last.ckpt" if step else None, weights_only=False)
run.wait()
if trainer.global_step < 60:
    raise SystemExit(orch_run.STOPPED)
if run.rank == 0:
    print(f"done: step {trainer.global_step}, loss {run.latest().meta['loss']}", flush=True)
