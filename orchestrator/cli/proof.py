"""What a training may be put to the proof with, here, before anything is rented: a value of its own, so that naming the
options loads nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """compile: the step for the TPU slice. world: all ranks of torch in one process."""

    compile: bool = False
    world: bool = False

    @property
    def asked(self) -> bool:
        return self.compile or self.world
