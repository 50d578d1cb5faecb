"""`orch serve --engine-only`: the unattended engine."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.errors import UserError


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch serve --engine-only", "drive every job that was launched with --detach, until it is stopped"),
        ("orch serve --engine-only --until-idle", "and end when nothing is left to do"),
        ("ORCH_STORE=postgresql://orch@db/orch orch serve --engine-only", "several of these share a team's jobs"),
    ],
)
@click.option("--engine-only", is_flag=True, help="Required: there is no web page yet.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do.")
def serve(engine_only: bool, until_idle: bool) -> None:
    """Drive jobs without a terminal: recover them, start queued ones in order, finish interrupted work.

    It keeps no state in memory: end it at any time with Ctrl-C or kill, and start it again.
    """
    if not engine_only:
        raise UserError("only the engine can be served", "there is no web page yet", "add --engine-only")
    import signal
    import threading

    from orchestrator.cli.drawing.engine_log import EngineLog
    from orchestrator.engine.services import real_services
    from orchestrator.engine.unattended.engine import UnattendedEngine, run_single_engine
    from orchestrator.paths import load_paths

    where = load_paths()
    attendant = UnattendedEngine(where=where, services=real_services(where), narrators=EngineLog)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: attendant.stop.set())
    try:
        ran = run_single_engine(attendant, until_idle=until_idle)
    except KeyboardInterrupt:
        attendant.stop.set()
        write_stderr("the engine ends; its work is recorded")
        return
    if not ran:
        write_stderr("an engine is running on this computer already")
