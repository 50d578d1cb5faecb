"""Run one rank of several JAX processes, `python jax_world.py KEY=VALUE ...`, and print its results as JSON.

LAST_WORDS=die: after its steps the last rank ends by SIGTERM, as JAX has left that, and the others go on until they
notice.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from jax_cases import EVALUATED_ALIKE, RATE, rows_of, settings

from trainer.environment import read_world
from trainer.errors import PeerError
from trainer.jax_engine.engine import open_jax_engine
from trainer.tcp_team import join_team


def main(words: str) -> int:
    config, world = settings(words), read_world(os.environ)
    team = join_team(world, config.dist)
    engine = open_jax_engine(config, world, team)
    programs = team.gather(engine.program())
    first, count = engine.share.rows(config.batch)
    losses: list[float] = []
    stops: list[int] = []
    for step in range(3):
        evaluated = engine.evaluate(rows_of(config, step)[first : first + count]) if step == 1 else None
        engine.step(rows_of(config, step)[first : first + count], RATE, step == 1 and world.rank > 0, step)
        losses.append(engine.numbers().loss)
        assert evaluated is None or abs(evaluated - losses[-1]) < EVALUATED_ALIKE
        stops.append(engine.numbers().stops)
    written = sum(piece.box.size for piece in engine.written())
    seen = {
        "losses": losses,
        "stops": stops,
        "programs": len(set(programs)),
        "rows": [first, count],
        "written": written,
    }
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    team.gather(None)
    if os.environ.get("LAST_WORDS") == "die":
        if world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            for step in range(3, 1000):
                engine.step(rows_of(config, step)[first : first + count], RATE, False, step)
                engine.numbers()
        except PeerError as error:
            sys.stdout.write(f"{error.code}: {error}\n")
            sys.stdout.flush()
            os._exit(error.exit_status)
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
