"""Records of logged steps, and the reports on a run's environment."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from metrics_cases import record, until
from support.toy_engine import ToyEngine

from trainer.checkpoint.store import open_store
from trainer.config import Config, DistConfig, MetricsConfig, ModelConfig
from trainer.data.state import DataState
from trainer.engine import Numbers
from trainer.environment import Run, World
from trainer.metrics import Recorder, SaveCosts, StepTimer, StepTimes, open_metrics
from trainer.metrics.record import format_duration
from trainer.metrics.run_reports import write_diagnostics, write_environment
from trainer.shape.architecture import count_flops_per_token
from trainer.shape.mesh import Mesh
from trainer.tcp_team import join_team
from trainer.team import Team

MODEL = ModelConfig(dim=32, layers=2, heads=2, kv_heads=1, vocab=256)


class Clocked(StepTimer):
    """A step timer that returns given times, so that the numbers of a record are exact."""

    def __init__(self, *spent: StepTimes) -> None:
        super().__init__()
        self._answers = list(spent)

    def take_means(self) -> StepTimes:
        return self._answers.pop(0)


class KnownEngine(ToyEngine):
    """A toy engine with two devices whose peak is published."""

    peak_flops = 1e12  # type: ignore[assignment]  # the toy has none

    def memory(self) -> int:
        return 123


@pytest.mark.promise("P37")
def test_a_record_has_the_measured_and_the_derived_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(
        steps=100, batch=8, seq_len=64, model=MODEL, metrics=MetricsConfig(file=str(tmp_path / "metrics.jsonl"))
    )
    world = World()
    engine = KnownEngine(config, world, join_team(world, DistConfig()))
    engine.mesh = Mesh(data=2)
    recorder = Recorder(config, Run(run_id="r1", attempt=3), world, engine)
    meter = Clocked(StepTimes(4.0, 0.5, None), StepTimes(0.5, 0.1, 0.3), StepTimes(0.5, 0.1, 0.3))
    with open_metrics(config, Run(), world, None, lambda _: None) as metrics:
        for step in (1, 20, 100):
            recorder.write(metrics, step, Numbers(2.5, 0.7, 0), 1e-3, meter, SaveCosts(0.25, 2))
        until(lambda: len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3)
    first, line, last = (json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert float.fromhex(line["loss_hex"]) == line["loss"] == 2.5
    assert (line["step"], line["tokens"], line["lr"], line["grad_norm"]) == (20, 20 * 512, 1e-3, 0.7)
    assert (line["tokens_per_s"], line["tokens_per_s_per_device"]) == (1024.0, 512.0)
    assert (line["step_s"], line["data_s"], line["compute_s"]) == (0.5, 0.1, 0.3)
    assert line["other_s"] == pytest.approx(0.1)
    assert line["checkpoint_stall_s"] == 0.25
    assert line["failed_saves"] == 2
    assert line["mfu"] == pytest.approx(count_flops_per_token(MODEL, 64) * 1024 / 1e12)
    assert (line["memory"], line["compilations"]) == (123, 0)
    assert (line["run_id"], line["attempt"], line["rank"]) == ("r1", 3, 0)
    assert (first["eta_s"], line["eta_s"], last["eta_s"]) == (4.0 * 99, 0.5 * 80, 0.0)
    assert first["compute_s"] is None
    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith("step 20/100  loss 2.5000  lr 1.00e-03  1,024 tok/s  mfu ")
    assert out[1].endswith("grad 0.70  eta 40 s")
    assert "eta" not in out[2]
    headline = recorder.headline(
        DataState(step=0, seed=0, batch=8, seq_len=64, source="books", total_tokens=10_000, vocab=256, fingerprint="f")
    )
    assert headline.endswith(" parameters; books: 10,000 tokens of 256 kinds; 8 x 64 tokens a step")


def test_the_terminal_line() -> None:
    expected = "step 120/200  loss 0.1000  lr 1.00e-03  41,000 tok/s  grad 1.00  eta 8 s"
    assert record(120).format_line(200) == expected
    untrained = replace(record(120), loss=0.0, grad_norm=0.0).format_line(200)
    assert untrained.startswith("step 120/200  loss none (no reply in these rows)  lr 1.00e-03")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3590, "1 h 00 min"), (11_100, "3 h 05 min"), (187_300, "2 d 4 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.promise("P37")
def test_the_step_timer_divides_by_steps_and_restarts() -> None:
    meter = StepTimer()
    for _ in range(4):
        meter.add_data_wait(1.0)
        meter.add_compute(2.0)
        meter.count_step()
    spent = meter.take_means()
    assert (spent.data_s, spent.compute_s) == (1.0, 2.0)
    assert 0 < spent.total_s < 1
    again = meter.take_means()
    assert (again.data_s, again.compute_s) == (0.0, None)


def test_environment_reports_cover_all_ranks_once_per_attempt(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    config = Config(model=MODEL, dist=DistConfig(join_timeout=10, timeout=10))
    store = open_store(str(tmp_path / "run/checkpoints"), create=True)
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        world = World(rank=number, size=2, coordinator=coordinator)
        try:
            team: Team = join_team(world, config.dist, "r1")
            engine = ToyEngine(config, world, team)
            for attempt in (1, 2, 1):
                write_environment(config, Run(run_id="r1", attempt=attempt), team, engine, store)
                write_diagnostics(config, Run(run_id="r1", attempt=attempt), team, engine, store)
            team.gather(None)
            engine.close()
            team.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []
    folder = tmp_path / "run"
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert names == ["diagnostics-0002.json", "diagnostics.json", "environment-0002.json", "environment.json"]
    environment = json.loads((folder / "environment.json").read_text())
    assert (environment["world"], environment["engine"], environment["attempt"]) == (2, "torch", 1)
    assert environment["mesh"] == {"data": 2, "fsdp": 1, "tensor": 1, "context": 1, "pipeline": 1, "devices": 2}
    assert [each["rows"]["first"] for each in environment["ranks"]] == [0, 1]
    assert {each["host"] for each in environment["ranks"]} == {socket.gethostname()}
    assert environment["config"]["model.dim"] == 32
    assert {"numpy", "torch"} <= set(environment["versions"])
    diagnostics = json.loads((folder / "diagnostics.json").read_text())
    assert [each["engine"] for each in diagnostics["ranks"]] == [{"toy": True}, {"toy": True}]
