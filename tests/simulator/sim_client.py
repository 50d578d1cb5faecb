"""A client of a kept cloud, as a separate process: creates and ends slices for ever, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from sim_support import CALL, EVEN

from orchestrator.simulator.calls import ApiError, CreateCall
from orchestrator.simulator.clock import StoredClock
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.scenario import Scenario


def main(folder: Path, prefix: str, rounds: int) -> None:
    clock = StoredClock(folder / "clock.json")
    access = Durable(folder / "cloud.json", Scenario(durations=EVEN), clock)
    print("ready", flush=True)
    for number in range(rounds):
        name = f"{prefix}-{number}"
        call = CreateCall(name=name, zone=CALL.zone, accelerator=CALL.accelerator, hosts=1, token=f"token-{name}")
        for _ in range(2):
            with access.open() as cloud:
                cloud.create(call)
        clock.advance(41)
        if number % 2:
            with access.open() as cloud:
                try:
                    cloud.end(name)
                except ApiError as error:
                    raise AssertionError(f"{name}: {error}") from error


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
