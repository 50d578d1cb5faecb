"""`orch store serve-only` and `orch store password`: the service as the only client of a team's store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.paths import Paths
    from orchestrator.store.serve_only import ServeOnlyChanges, ServePlan
    from orchestrator.store.server_login import Finished

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")


@click.command(
    "serve-only",
    cls=OrchCommand,
    examples=[
        (
            "orch store serve-only https://orch.example.org --login orch_servers --password-file password --dry-run",
            "who would lose what, and the SQL",
        ),
        (
            "orch store serve-only https://orch.example.org --login orch_servers --password-file password",
            "from now on the service is the only client",
        ),
        ("orch store serve-only --undo", "the members' logins may use the store again"),
    ],
)
@click.argument("url", required=False, default="")
@click.option("--login", default="", help="The login of the servers; that of the tables' owner by default.")
@click.option("--password-file", type=click.Path(dir_okay=False, path_type=Path),
              help="Where its password is written, for this user alone.")  # fmt: skip
@click.option("--allow", "allowed", multiple=True, metavar="LOGIN",
              help="Agree to a login that stays able to use the tables directly; repeat it for each.")  # fmt: skip
@click.option("--undo", is_flag=True, help="Give the members' logins their rights again.")
@_dry_run
@click.option("-y", "--yes", is_flag=True, help="Skip the question.")
def serve_only(
    url: str, login: str, password_file: Path | None, allowed: tuple[str, ...], *, undo: bool, dry_run: bool, yes: bool
) -> None:
    """Make the service at URL the only client of a team's store, for which PostgreSQL takes the rights of all others.

    The servers' login gets a new password, in a file that `orch serve` reads: ORCH_STORE_PASSWORD_FILE. All other
    logins are refused, with the address of the service. The login that owns the tables does it; PostgreSQL keeps out
    neither that login nor superusers. The command fails for others whom it cannot keep out, for example members of
    pg_read_all_data or of the servers' login, unless --allow names each. Repeat it if it was interrupted.
    """
    if undo:
        if url or login or allowed or password_file is not None:
            raise UserError("--undo takes no URL and no login", "the store has them on record", "leave them out")
        _open_again(dry_run=dry_run, yes=yes)
        return
    _server_location()  # a store that is a file cannot do it, whatever else is named
    file = password_file or _named_file()
    if not url or file is None:
        missing = "the address of the service" if not url else "a file for the password"
        step = "orch store serve-only https://orch.example.org --password-file FILE"
        raise UserError(f"{missing} is not named", "", step)
    from orchestrator.store.serve_only import refuse_unagreed
    from orchestrator.store.server_login import ServerLogin

    with _open_changes() as store:
        plan = store.plan_serving(url, login, allowed)
        lines = _describe(plan, file)
        if dry_run:
            write_stdout(*lines, "", *(f"{statement};" for statement in plan.statements))
            return
        refuse_unagreed(plan)
        _ask(lines, yes=yes)
        servers = ServerLogin(location=_server_location(), name=plan.served.login, file=file.absolute())
        store.serve_only(plan, servers, servers.prepare()[0])
    done = servers.finish()
    write_stderr(
        f"clients come through {plan.served.address} alone",
        *_describe_end(done, file),
        f"start each server with {_environment(plan.served.login, file)}",
    )


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch store password", "on the only computer with servers: change it now"),
        ("orch store password --prepare", "write the next one; copy the file to the other computers of servers"),
        ("orch store password", "then, on one of them: change it"),
    ],
)
@click.option("--prepare", is_flag=True, help="Write the next password into the file; the present one still counts.")
@_dry_run
def password(*, prepare: bool, dry_run: bool) -> None:
    """Change the password of the login in ORCH_STORE, kept in ORCH_STORE_PASSWORD_FILE, while servers run.

    The file has the next password in its first line, and the present one below. Servers read it for each connection and
    try both, so none is refused. Of a mounted secret, write the two lines yourself. Repeat the command if it was
    interrupted.
    """
    from orchestrator.store.server_login import ServerLogin

    if (file := _named_file()) is None:
        raise UserError("no file with a password is named", "", "export ORCH_STORE_PASSWORD_FILE=FILE")
    location = _server_location()
    with _open_changes() as store:
        login = ServerLogin(location=location, name=store.user, file=file)
        if dry_run:
            verb = "write the next password of" if prepare else "change the password of"
            write_stdout(f"would {verb} the login '{login.name}' in {file}")
            return
        first, *_ = login.prepare()
        if prepare:
            write_stderr(f"the next password of '{login.name}' is in {file}; the present one still counts",
                         "copy the file to each computer of servers, then: orch store password")  # fmt: skip
            return
        login.refuse_without_password()
        if not login.takes(first):
            store.change_password(login, first)
    write_stderr(f"the password of '{login.name}' was changed", *_describe_end(login.finish(), file))


def _open_again(*, dry_run: bool, yes: bool) -> None:
    from orchestrator.store.location import store_location
    from orchestrator.store.read import open_reader_at

    with open_reader_at(store_location(os.environ, _paths())) as reader:
        served = reader.served()
    if served is None:
        raise UserError("the store is open to its members", "", "orch store   shows what it is")
    lines = [
        f"these logins may use the store directly again, beside {served.address}: {_join(served.revoked) or 'none'}",
        "roles and budgets of the service do not hold for them",
    ]
    if dry_run:
        write_stdout(*lines)
        return
    _ask(lines, yes=yes)
    with _open_changes() as store:
        store.open_again()
    write_stderr("the store is open to its members")


def _describe(plan: ServePlan, file: Path) -> list[str]:
    served = plan.served
    made = "is made, with a password" if plan.creates_login else "gets a new password"
    return [
        f"clients come through {served.address} alone",
        f"  servers use:          the login '{served.login}': it {made} in {file}",
        f"  lose their rights:    {_join(plan.losing) or 'no login has any'}",
        *([f"  not back by --undo:   {_join(plan.unrestored)}"] if plan.unrestored else []),
        *_describe_direct(plan),
        f"  end now:              sessions of '{served.login}' with its former password",
    ]


def _describe_direct(plan: ServePlan) -> list[str]:
    """Return who stays able to use the tables, and why; the last are refused."""
    agreed = [f"{one.name} ({one.power})" for one in plan.able_to_return if one not in plan.unagreed]
    unagreed = [f"{one.name} ({one.power})" for one in plan.unagreed]
    lines = [f"  can always return:    {', '.join(agreed) or plan.served.login}"]
    return [*lines, f"  not agreed to yet:    {', '.join(unagreed)}"] if unagreed else lines


def _describe_end(done: Finished, file: Path) -> list[str]:
    lines = [f"{count_noun(done.ended, 'session')} with the former password ended"] if done.ended else []
    return [*lines, f"{file} cannot be written: take its lines below the first out"] if done.keeps_former else lines


def _environment(login: str, file: Path) -> str:
    from orchestrator.store.location import describe_location

    address = describe_location(_server_location(), login=login)
    return f"ORCH_STORE={address} ORCH_STORE_PASSWORD_FILE={file.absolute()}"


def _join(logins: tuple[str, ...]) -> str:
    return ", ".join(one or "every login (PUBLIC)" for one in logins)


def _ask(lines: list[str], *, yes: bool) -> None:
    if yes:
        return
    if not can_ask():
        raise UserError(lines[0] + ": no one agreed", "there is no terminal to ask on", "add --yes, or --dry-run first")
    write_stderr(*lines)
    if not click.confirm("do it?", default=False, err=True):
        raise OrchError("you declined", "nothing was changed", "orch store serve-only --help")


def _named_file() -> Path | None:
    from orchestrator.store.password_file import find_password_file

    return find_password_file(os.environ)


def _server_location() -> str:
    from orchestrator.store.location import describe_location, store_location

    location = store_location(os.environ, _paths())
    if isinstance(location, Path):
        raise UserError(
            f"the store {describe_location(location)} is a file of this user, which has no logins",
            "every program of this user can read and change it, whatever is recorded in it",
            "a team's store is on PostgreSQL: export ORCH_STORE=postgresql://USER@HOST:PORT/DATABASE   (docs/team.md)",
        )
    return location


def _open_changes() -> ServeOnlyChanges:
    from orchestrator.store.serve_only import ServeOnlyChanges

    return ServeOnlyChanges(_server_location(), doing="orch store serve-only")


def _paths() -> Paths:
    from orchestrator.paths import load_paths

    return load_paths()
