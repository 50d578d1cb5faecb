"""Data with nothing to train on ends every rank with one error, and a step without a target ends none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.chat_shards import mask_all
from trainer_ranks import Launcher

from trainer.commands.prepare import run
from trainer.data.index import INDEX_NAME


def prepare(folder: Path) -> Path:
    """Prepare chats with long questions and short replies, so that many rows have no target."""
    chat = [{"role": "user", "content": "How much is 1 and 2? " * 8}, {"role": "assistant", "content": "3"}]
    (folder / "chats.jsonl").write_text(f"{json.dumps({'messages': chat})}\n" * 60)
    run([str(folder / "chats.jsonl"), str(folder / "tokens"), "chat=auto"])
    return folder / "tokens"


@pytest.mark.parametrize("ranks", [1, 2])
def test_data_without_a_marked_token_ends_every_rank_and_says_so(launch: Launcher, tmp_path: Path, ranks: int) -> None:
    data = prepare(tmp_path)
    mask_all(data)
    started = launch(ranks, "steps=4", f"data={data}")
    statuses = started.wait()
    assert not {0, 75} & set(statuses), started.text()
    said = [started.text(rank) for rank in range(ranks)]
    first = f"data={data} has nothing to train on"
    assert any(first in one for one in said), said
    for one in said:  # a rank that began after the other had ended lost it
        assert first in one or "error[peer]" in one, said
        assert "Traceback" not in one and "step 1/" not in one


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_read_no_marked_token_ends_every_rank_with_the_same_error(
    launch: Launcher, tmp_path: Path, ranks: int
) -> None:
    data = prepare(tmp_path)
    mask_all(data)
    index = json.loads((data / INDEX_NAME).read_text())
    index["shards"][0]["trained"] = 7  # of tokens that these steps do not read
    (data / INDEX_NAME).write_text(json.dumps(index))
    started = launch(ranks, "steps=4", f"data={data}", "checkpoint.uri=saved")
    (status,) = set(started.wait())
    assert status not in (0, 75), started.text()
    for rank in range(ranks):
        assert f"data={data} has nothing to train on" in started.text(rank), started.text()
        assert "Traceback" not in started.text(rank)
    assert not list((tmp_path / "saved").glob("step-*")), "nothing that a resume would call done"


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_without_a_target_among_others_do_not_end_a_run(launch: Launcher, tmp_path: Path, ranks: int) -> None:
    done = launch(ranks, "steps=20", "batch=2", f"data={prepare(tmp_path)}").ok()
    losses = [record["loss"] for record in done.metrics()]
    assert 0.0 in losses and any(losses), losses
