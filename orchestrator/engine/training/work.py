"""What is to be computed: a run of the bundled trainer, or a program of one's own. With what is usual for its size."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.formatting import parse_count
from orchestrator.task.trainer_settings import list_data_sources

_SIZE = re.compile(r"\d+[mb]")
_PER_PARAMETER = 20  # tokens, compute-optimal (Hoffmann et al. 2022)
# Tokens of a step by the number of parameters below: GPT-3 (Brown et al. 2020, table 2.1), as powers of two.
_STEP_TOKENS = ((1e9, 2**19), (5e9, 2**20), (2e10, 2**21), (float("inf"), 2**22))
# Share of the peak that a program of one's own reaches: assumed. Published trainings reach 30 to 60 %.
_OWN_UTILISATION = (0.15, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A run of the bundled trainer.

    Attributes:
        settings: The trainer's arguments, with the model; with batch and seq_len unless the steps are given.
        tokens: Of the whole run, where its steps are not given.
        steps: As they were given; None where they follow from the tokens.
    """

    settings: tuple[str, ...]
    tokens: float = 0.0
    steps: int | None = None

    def count_steps(self, tokens: float) -> int:
        """Return the steps of the run, each of so many tokens."""
        return math.ceil(self.tokens / tokens) if self.steps is None else self.steps

    @property
    def has_data(self) -> bool:
        """Whether the settings name data: without, it is the trainer's default text."""
        pairs = (word.partition("=") for word in self.settings)
        return any(list_data_sources((name, value) for name, _, value in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProgram:
    """A program of one's own.

    Attributes:
        flops: Of the whole run.
        memory_gib: That all chips together have to have.
        utilisation: The share of the peak that it reaches, (lowest, highest).
        source: Who says so; "" where it is assumed.
    """

    flops: float
    memory_gib: float
    utilisation: tuple[float, float] = _OWN_UTILISATION
    source: str = ""


def read_training(
    settings: Sequence[str],
    *,
    model: str | None = None,
    seq: int | None = None,
    batch: int | None = None,
    tokens: float | None = None,
) -> Training:
    """Return the run, with a batch and a number of tokens that are usual for its size where none are given.

    Steps mean what they mean in any other run: with them nothing is added, and the trainer's defaults count.

    Args:
        settings: Of the trainer, `KEY=VALUE`.
        model: One of the trainer; None for that of the settings.
        seq: Tokens of a row, likewise.
        batch: Rows of a step, likewise.
        tokens: Of the whole run; None for the steps of the settings, or what is usual.

    Raises:
        UserError: The size is not in the model's name, and what follows from it is missing.
    """
    given = {name: value for name, _, value in (word.partition("=") for word in settings)}
    model = model or given.get("model")
    takes_steps = tokens is None and "steps" in given
    if not model and not takes_steps:
        step = "orch offers --model 1b --tokens 20B   or: orch offers --flops 1e21 --memory 320"
        raise UserError("what is to be trained is missing", "", step)
    size = parse_count(model) if model and _SIZE.fullmatch(model) else None
    if wrong := [name for name in ("batch", "seq_len", "steps") if not given.get(name, "1").isdecimal()]:
        raise UserError(f"`{wrong[0]}={given[wrong[0]][:40]}` is not a whole number", "", f"{wrong[0]}=512")
    if takes_steps:
        return Training(settings=_merge_settings(settings, model, seq, batch), steps=int(given["steps"]))
    length = seq or int(given.get("seq_len", 0)) or (2048 if size is None or size < 2e9 else 4096)
    if batch is None and "batch" not in given:
        step_tokens = next(count for most, count in _STEP_TOKENS if (size or 1e9) < most)
        batch = max(1, step_tokens // length)
    if tokens is None:
        if given.get("lora.rank", "0") not in ("", "0"):
            why = "20 for each parameter is a rule for training all of them"
            raise UserError("how many tokens LoRA trains on is missing", why, "--tokens 100M, or steps=1000")
        if size is None:
            raise UserError(f"--tokens is missing: the name `{model}` has no size", "", "--tokens 20B")
        tokens = _PER_PARAMETER * size
    return Training(settings=_merge_settings(settings, model, length, batch), tokens=tokens)


def _merge_settings(settings: Sequence[str], model: str | None, seq: int | None, batch: int | None) -> tuple[str, ...]:
    """Return the settings without steps, and with these instead where they are not None."""
    named = {"model": model, "seq_len": seq, "batch": batch}
    words = [f"{name}={value}" for name, value in named.items() if value is not None]
    own = {word.partition("=")[0] for word in words} | {"steps"}
    return (*words, *(word for word in settings if word.partition("=")[0] not in own))
