"""`orch exec` through a service: over SSH with this computer's key, as a command of this session that no record has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.act import ActMode, PreviewMode, carry_out
from orchestrator.cli.execution.end_signals import interrupt_on_end_signals
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.cli.execution.host_ssh import refuse_stopped
from orchestrator.cli.failures import print_error
from orchestrator.client.host_records import host_record_source
from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.store.lookup import find_cluster

if TYPE_CHECKING:
    from orchestrator.values import Text


def exec_served(
    cluster: str,
    command: str,
    mode: ActMode,
    *,
    hosts: tuple[int, ...] | None,
    workdir: Path | None,
    env: tuple[tuple[str, Text], ...],
    identity: str,
) -> int:
    """Run a command on the hosts of a cluster of the service, and return its exit status; `--dry-run` shows its plan.

    Raises:
        OrchError: It was not begun.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import ending_as_json, print_ending
    from orchestrator.engine.operations.session_command import run_in_session
    from orchestrator.engine.preparation.commands import prepare_exec
    from orchestrator.remote.host_operations import SshHostOperations

    with host_record_source(cluster) as open_records, interrupt_on_end_signals() as received:
        if isinstance(mode, PreviewMode):
            return carry_out(
                prepare_exec(cluster, command, hosts=hosts, workdir=workdir, env=env, open_records=open_records), mode
            )
        with open_records() as store:
            record = find_cluster(store, cluster)
            refuse_stopped(record)
            entered = enter_hosts(store, record, hosts, identity=identity)
            installation = store.installation() or ""
        operations = SshHostOperations(entered)
        try:
            marks = operations.read_marks()
            ready = prepare_exec(
                cluster, command, hosts=hosts, workdir=workdir, env=env, open_records=open_records, marks=marks.held
            )
            out = sys.stderr if mode.as_json else sys.stdout
            with TerminalNarrator(out, prefix=mode.prefix, raw=mode.raw) as narrator:
                for note in ready.notes:
                    narrator.note(note)
                ending = run_in_session(ready, record.uid, installation, operations, narrator)
        except KeyboardInterrupt:
            write_stderr("interrupted; the command was ended on the hosts that answered")
            return 128 + received[0] if received else Exit.INTERRUPTED
        except OrchError as error:
            if not mode.as_json:
                raise
            return print_error(error, debug=current_session().debug)
        finally:
            operations.close()
    if mode.as_json:
        write_stdout(json.dumps(ending_as_json(cluster, "exec", ending), indent=2))
    print_ending(ending)
    return ending.status
