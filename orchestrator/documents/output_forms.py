"""Common forms of output, from which a step and a loss are read. They are shown, and decide nothing.

Each expression has bounded repeats, and a line is cut before it is read, so a line takes a bounded time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from orchestrator.task.output_pattern import NUMBER, STEP, OutputPattern

LONGEST_LINE = 4096  # characters of a line that are read
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
OWN = "metrics.pattern"  # the name of a person's own form
_MARKS = ("loss", "Loss", "LOSS", "it/s", "s/it")  # a line without any of them has no known form


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputForm:
    """One form of output.

    Attributes:
        step: An expression with the group `step`; "" for a form without a step.
        loss: One with the group `loss`.
        loss_is_optional: Whether a line without a loss has this form too.
        example: A line.
        source: The public source that prints it, and the date on which it was read.
    """

    name: str
    step: str
    loss: str
    loss_is_optional: bool = False
    example: str
    source: str

    def find(self, line: str) -> tuple[str | None, str | None] | None:
        """Return step and loss as a line has them, each None where it has none; None for a line of another form."""
        step = _compile(self.step).search(line) if self.step else None
        loss = _compile(self.loss).search(line)
        if (self.step and step is None) or (loss is None and not self.loss_is_optional):
            return None
        return step and step["step"], loss and loss["loss"]


_LOSS = rf"(?P<loss>{NUMBER})"
_TRAINING = "".join(rf"(?<!{word}[ _/.])" for word in ("val", "eval", "valid", "validation", "test", "best", "dev"))
# The descriptions of Lightning's bars that do not train (the same source as below); HF Trainer's evaluation has none.
_OTHER_BARS = "Validation|Sanity Checking|Testing|Predicting"
# Without a loss, a bar with a name trains only if its name says so: others load weights, map data, or download.
_BAR = (
    r"(?:\s{0,20}\d{1,3}%|(?i:[^|%]{0,200}(?:epoch|train|step|iter)[^|%]{0,100}\d{1,3}%)"
    r"|(?=[^\]]{0,600}[ ,_/]loss(?:_step)?=)[^|]{0,300})\|"
)
_STEP = rf"(?P<step>{STEP})"
# The first form that a line has is taken.
FORMS: tuple[OutputForm, ...] = (
    OutputForm(
        name="tqdm",  # also Lightning's bar and that of the HF Trainer, which are tqdm's
        step=rf"^(?!\s{{0,4}}(?:{_OTHER_BARS})){_BAR}[^|]{{0,300}}\|\s{{0,20}}{_STEP}/\d{{1,20}} "
        r"\[[\d:]{1,20}<[^,\]]{1,20},\s{0,20}[^,\]]{1,20}(?:it/s|s/it)",
        loss=rf"[ ,](?:train(?:ing)?[_/])?loss(?:_step)?={_LOSS}",
        loss_is_optional=True,
        example=" 45%|████▌     | 450/1000 [00:45<00:55, 10.00it/s, loss=2.31]",
        source="tqdm/std.py format_meter, tqdm/tqdm at 000ba6fa; src/lightning/pytorch/callbacks/progress/"
        "tqdm_progress.py, Lightning-AI/pytorch-lightning at 03f57f9c (read 2026-11-30)",
    ),
    OutputForm(
        name="Rich",
        step=rf"^\s{{0,20}}Epoch [\d/]{{1,40}}\s[^\d]{{0,300}}\s{_STEP}/\d{{1,20}}\s{{1,20}}[\d:]{{1,20}} \u2022 ",
        loss=rf"\s(?:train(?:ing)?_)?loss(?:_step)?: {_LOSS}",
        loss_is_optional=True,
        example="Epoch 0/9  ━━━━━━━╸━━━━━━━━ 450/1000 0:00:45 • 0:00:55 10.00it/s v_num: 0.000 train_loss: 2.310",
        source="src/lightning/pytorch/callbacks/progress/rich_progress.py, Lightning-AI/pytorch-lightning at 7f0c3436 "
        "(read 2026-11-30)",
    ),
    OutputForm(
        name="HF Trainer",  # its step is in the bar beside it
        step="",
        loss=rf"\{{'loss': '?{_LOSS}'?[,}}]",
        example="{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.45}",
        source="ProgressCallback and PrinterCallback of src/transformers/trainer_callback.py, "
        "huggingface/transformers at 55093b75; later ones print numbers as text (read 2026-11-30)",
    ),
    OutputForm(
        name="torchtitan",
        step=rf"(?<!validate )step:\s{{0,20}}{_STEP}\s{{1,20}}loss:",
        loss=rf"\sloss:\s{{0,20}}{_LOSS}",
        example="[titan] 2026-11-30 10:00:00,000 - root - INFO - step: 450  loss:  2.3104  grad_norm:  1.5000",
        source="MetricsProcessor.log of torchtitan/components/metrics.py, pytorch/torchtitan at 00fbaafa "
        "(read 2026-11-30)",
    ),
    OutputForm(
        name="MaxText",
        step=rf"completed step: {_STEP}, seconds:",
        loss=rf", loss: {_LOSS}",
        example="completed step: 450, seconds: 1.150, TFLOP/s/device: 470.000, Tokens/s/device: 57000.000, loss: 2.310",
        source="src/maxtext/common/metric_logger.py, AI-Hypercomputer/maxtext at 000e6d8a (read 2026-11-30)",
    ),
    OutputForm(
        name="nanoGPT",
        step=rf"(?:^|; )iter {_STEP}: (?:train )?loss ",
        loss=rf": (?:train )?loss {_LOSS}",
        example="iter 450: loss 2.3104, time 250.00ms, mfu 35.00%",
        source="train.py, karpathy/nanoGPT at 005475c4; `iter_dt 9.91ms; iter 450: train loss 2.31` of "
        "projects/chargpt/chargpt.py, karpathy/minGPT at 37baab7 (read 2026-11-30)",
    ),
    OutputForm(
        name="pytorch/examples",
        step=rf"\|\s{{0,20}}{_STEP}/\s{{0,20}}\d{{1,20}} batches \|",
        loss=rf"\| loss\s{{1,20}}{_LOSS} \|",
        example="| epoch   1 |   450/ 1000 batches | lr 20.00 | ms/batch  5.20 | loss  2.31 | ppl    10.07",
        source="word_language_model/main.py, pytorch/examples at 77f55b9 (read 2026-11-30)",
    ),
    OutputForm(
        name="LitGPT",
        step=rf"\| iter \d{{1,20}} step {_STEP} \|",
        loss=rf"\| loss train: {_LOSS}",
        example="Epoch 1 | iter 900 step 450 | loss train: 2.310, val: n/a | iter time: 250.00 ms (step)",
        source="litgpt/pretrain.py, Lightning-AI/litgpt at 0363060b (read 2026-11-30)",
    ),
    OutputForm(
        name="Megatron-LM",
        step=rf" iteration\s{{1,20}}{_STEP}/\s{{0,20}}\d{{1,20}} \|",
        loss=rf"\| lm loss: {_LOSS}",
        example=" [2026-11-30 10:00:00] iteration      450/    1000 | consumed samples: 3600 | lm loss: 2.3104E+00 |",
        source="training_log of megatron/training/training.py, NVIDIA/Megatron-LM, as its public copies have it "
        "(read 2026-11-30)",
    ),
    OutputForm(
        name="DLRM",
        step=rf"Finished training it {_STEP}/\d{{1,20}} of epoch ",
        loss=rf", loss {_LOSS}",
        example="Finished training it 450/1000 of epoch 2, -1.00 ms/it, loss 2.310400",
        source="dlrm_s_pytorch.py, facebookresearch/dlrm at 090956e (read 2026-11-30)",
    ),
    OutputForm(
        name="step and loss",
        step=rf"(?i)(?<!validate )(?:\b|_)step[ :=#]{{1,20}}{_STEP}(?![\d.])",
        loss=rf"(?i){_TRAINING}(?:\b|_)loss[ :=]{{1,20}}{_LOSS}",
        example="step 450/1000  loss 2.3104  lr 3.00e-04",
        source="trainer/metrics/record.py of orch; also the evaluation line of train.py, karpathy/nanoGPT at 005475c4, "
        "`step 450: train loss 2.3104, val loss 2.4000` (read 2026-11-30)",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputProgress:
    """What was read from a program's output.

    Attributes:
        step: None where no line had one.
        loss: As the program wrote it, which may be `nan`; "" where no line had one.
        form: The name of the form of the newest line.
    """

    step: int | None
    loss: str
    form: str

    def __str__(self) -> str:
        step = f"step {self.step:,}" if self.step is not None else ""
        return ", ".join(filter(None, (step, f"loss {self.loss}" if self.loss else "")))


def read_output(newest_first: Iterable[str], own: OutputPattern | None = None) -> OutputProgress | None:
    """Return the newest step and loss of some lines; None where no line has a known form.

    Step and loss of one line belong together. Where a form has only one of them, the other is that of an older line.

    Args:
        newest_first: The lines, without what a carriage return overwrote.
        own: A person's own form, which then is the only one.
    """
    step: int | None = None
    loss = form = ""
    for line in newest_first:
        found = _find(_COLOUR.sub("", line[:LONGEST_LINE]), own)
        if found is None:
            continue
        name, new_step, new_loss = found
        if step is None and new_step is not None:
            step = int(new_step.replace(",", "").replace("_", ""))
        loss, form = loss or new_loss or "", form or name
        if step is not None and loss:
            break
    return OutputProgress(step=step, loss=loss, form=form) if form else None


def output_as_json(output: OutputProgress | None) -> dict[str, object] | None:
    """Return what output says as documents have it; a loss that is no finite number is null."""
    if output is None:
        return None
    loss: float | None = None
    with suppress(ValueError):
        loss = float(output.loss)
    finite = loss is not None and abs(loss) < float("inf")
    return {"step": output.step, "loss": loss if finite else None, "form": output.form, "text": str(output)}


def _find(line: str, own: OutputPattern | None) -> tuple[str, str | None, str | None] | None:
    if own is not None:
        found = own.find(line)
        return None if found is None else (OWN, *found)
    if not any(mark in line for mark in _MARKS):
        return None
    for form in FORMS:
        if (found := form.find(line)) is not None:
            return (form.name, *found)
    return None


_compile = cache(re.compile)
