"""Report an error: lines on stderr, an exit status, and a crash log when the fault is in orch itself."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from pathlib import Path

import click

from orchestrator.cli.command import Session
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.open_files import explain_exhaustion


def report_error(error: BaseException, session: Session) -> int:
    """Print `error` to stderr and, where the command line has `-o json`, to stdout as JSON; return the exit status."""
    error = explain_exhaustion(error) or error
    status = print_error(error, debug=session.debug)
    if session.as_json:
        _write_json(error, status)
    return status


def print_error(error: BaseException, *, debug: bool) -> int:
    """Print `error` to stderr with its cause and next step, and return the exit status to leave with."""
    error = explain_exhaustion(error) or error
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        _print(["interrupted"])
        return Exit.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _print([error.format_message()])
        return Exit.USAGE
    if isinstance(error, click.ClickException):
        error = translate_click_error(error)
    if not isinstance(error, OrchError):
        return _our_fault(error, debug=debug)
    if debug:
        _print(_traceback(error))
    _print(_detached(error) if error.exit_status == Exit.INTERRUPTED else error.lines())
    return error.exit_status


def error_as_json(error: BaseException, status: int) -> dict[str, object]:
    """Return the error as in data/error.schema.json."""
    code, what, why, next_step = "fault", "a bug in orch stopped this command", _first_line(error), ""
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        code, what, why = "interrupted", "interrupted", ""
    elif isinstance(error, click.ClickException):
        error = translate_click_error(error)
    if isinstance(error, OrchError):
        code, what, why, next_step = error.code, error.what, error.why, error.next_step
    details: dict[str, object] = {"code": code, "what": what, "why": why or None, "next": next_step or None}
    problems = getattr(error, "problems", ())  # of a FileError, whose module only some commands need
    if problems:
        details["problems"] = [
            {"place": one.place, "what": one.what, "why": one.why or None, "next": one.next_step or None}
            for one in problems
        ]
    return {"version": 1, "kind": "error", "status": int(status), "error": details}


def _write_json(error: BaseException, status: int) -> None:
    import json

    try:
        write_stdout(json.dumps(error_as_json(error, status), indent=2))
        sys.stdout.flush()
    except OSError:  # stdout is closed; stderr and the exit status still report the error
        return


def translate_click_error(error: click.ClickException) -> OrchError:
    """Return click's complaint about the arguments as a UserError in our words."""
    next_step = "orch --help"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        context = error.ctx
        next_step = f"{context.command_path} --help"
        if isinstance(error, click.MissingParameter):
            usage = " ".join((context.command_path, *context.command.collect_usage_pieces(context)))
            next_step = f"{usage}   (more: {next_step})"
    return UserError(_describe_click_error(error), next_step=next_step)


def _describe_click_error(error: click.ClickException) -> str:
    """Say what is wrong without click's words for types and parameters."""
    message = error.format_message().rstrip(".")
    match error:
        case click.NoSuchOption(option_name=name) if name in _ELSEWHERE:
            return f"there is no option {name}; {_ELSEWHERE[name]}"
        case click.NoSuchOption():
            near = f"; did you mean {' or '.join(error.possibilities)}?" if error.possibilities else ""
            return f"there is no option {error.option_name}{near}"
        case click.MissingParameter(param=click.Parameter() as param):
            return f"{_parameter_name(param)} is missing"
        case click.BadParameter(param=click.Parameter() as param):
            said = error.message[:1].lower() + error.message[1:].rstrip(".")
            for theirs, ours in _TYPES:
                said = said.replace(theirs, ours)
            return f"{_parameter_name(param)}: {said}"
        case _:
            pass
    if found := re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message, re.DOTALL):
        return f"more was given than this command takes: {found[1]}"
    if found := re.fullmatch(r"Option '(.*)' requires (?:an argument|\d+ arguments)", message):
        return f"{found[1]} needs a value"
    return message[:1].lower() + message[1:]


# Options of SkyPilot's commands, whose nearest names here mean something else.
_ELSEWHERE = {
    "--cpus": "write --instance-type TYPE, or in a task file: resources: {cpus: 4+}",
    "--memory": "write --instance-type TYPE, or in a task file: resources: {memory: 32+}",
    "--idle-minutes-to-autostop": "write --idle-minutes N, or in a task file: autostop",
    "--cloud": "write --infra CLOUD",
    "--region": "write --infra CLOUD/REGION",
    "--zone": "write --infra CLOUD/REGION/ZONE",
}
_TYPES = (
    ("a valid integer range", "a whole number"),
    ("a valid integer", "a whole number"),
    ("a valid float range", "a number"),
    ("a valid float", "a number"),
)


def _parameter_name(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def _detached(error: OrchError) -> list[str]:
    """Return the lines for a user who left on purpose: no error, but how to come back."""
    return [error.what, *(f"  {line}" for line in error.next_step.splitlines())]


def _our_fault(error: BaseException, *, debug: bool) -> int:
    trace = _traceback(error)
    if debug:
        _print(trace)
    why = _first_line(error)
    log = _write_crash_log(trace)
    lines = ["error[fault]: a bug in orch stopped this command", f"  why:  {why}"]
    if log is not None:
        lines.append(f"  log:  {log}")
    elif not debug:
        lines += trace  # no file could be written: better here than lost
    _print([*lines, "  next: orch status   (shows the recorded state; the same command again resumes from there)"])
    return Exit.FAILURE


def _first_line(error: BaseException) -> str:
    message = str(error).strip().splitlines()
    return f"{type(error).__name__}: {message[0]}" if message else type(error).__name__


def _write_crash_log(trace: list[str]) -> Path | None:
    """Write the traceback to its own file and return its path; None when that is impossible.

    Neither arguments nor variables are written, since they may hold secrets.
    """
    from orchestrator import __version__
    from orchestrator.paths import load_paths
    from orchestrator.private_files import make_private_folder, open_private

    try:
        folder = load_paths().state / "crash"
        make_private_folder(folder)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        head = [f"orch {__version__}", f"python {sys.version.split()[0]} on {sys.platform}"]
        with open(path, "w", encoding="utf-8", opener=open_private) as file:
            file.write("\n".join([*head, *trace]) + "\n")
    except OSError:
        return None
    return path


def _traceback(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).rstrip().splitlines()


def _print(lines: list[str]) -> None:
    try:
        write_stderr(*lines)
    except OSError:  # stderr is closed; the exit status still reports the error
        return
