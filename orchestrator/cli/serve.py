"""`orch serve --engine-only`: the unattended engine."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.terminal import say
from orchestrator.errors import UserError


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch serve --engine-only", "drive every job that was launched with --detach, for ever"),
        ("orch serve --engine-only --until-idle", "and end when nothing is left to do"),
        ("ORCH_STORE=postgresql://orch@db/orch orch serve --engine-only", "several of these share a team's jobs"),
    ],
)
@click.option("--engine-only", is_flag=True, help="Needed for now: there is no web page yet.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do.")
def serve(engine_only: bool, until_idle: bool) -> None:
    """Drive jobs without a terminal: recover them, take queued ones in order, finish what was cut off.

    It keeps nothing in memory that matters: end it at any time with Ctrl-C or kill, and start it again.
    """
    if not engine_only:
        raise UserError("only the engine can be served", "the web page is not there yet", "add --engine-only")
    import signal
    import threading

    from orchestrator.cli.logbook import Logbook
    from orchestrator.engine.attend import Attendant, only_one
    from orchestrator.engine.world import real_world
    from orchestrator.paths import paths

    where = paths()
    attendant = Attendant(where, real_world(where), Logbook)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: attendant.stop.set())
    try:
        ran = only_one(attendant, until_idle=until_idle)
    except KeyboardInterrupt:
        attendant.stop.set()
        say("the engine ends; what it was at is on record")
        return
    if not ran:
        say("an engine is at work on this computer already")
