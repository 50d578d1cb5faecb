"""A checkpoint written on one mesh and number of processes is read on any other, value by value."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_toy import config_of, resume, save

from trainer.shape.mesh import Mesh

CONFIG = config_of("optim.ema=0.9")
LAYOUTS = [
    (Mesh(), 1),
    (Mesh(data=2), 2),
    (Mesh(fsdp=4), 4),
    (Mesh(data=2, fsdp=2), 2),
    (Mesh(tensor=2), 1),
    (Mesh(fsdp=2, tensor=2), 4),
    (Mesh(data=2, fsdp=2, tensor=2), 2),
    (Mesh(data=2, fsdp=2, context=4), 4),
    (Mesh(fsdp=2, pipeline=2), 4),
    (Mesh(data=2, tensor=2, pipeline=2), 2),
]


@pytest.mark.promise("P32")
@pytest.mark.parametrize(("mesh", "processes"), LAYOUTS)
def test_every_layout_reads_what_every_other_wrote(tmp_path: Path, mesh: Mesh, processes: int) -> None:
    place = str(tmp_path / "checkpoints")
    save(place, CONFIG, mesh, processes, 3)
    for other, readers in LAYOUTS:
        done, engines, lines = resume(place, CONFIG, other, readers)
        assert done == 3
        for engine in engines:
            engine.check(3)
        assert len(lines) == 1
        assert lines[0].startswith(
            f"resumed from step 3 of attempt 1, data position 24 rows, written by {processes} ranks, "
        )
