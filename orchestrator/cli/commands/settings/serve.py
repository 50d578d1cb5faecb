"""`orch serve`: the page, the HTTP API and the unattended engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.distribution import install_command
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.engine.unattended.engine import UnattendedEngine
    from orchestrator.paths import Paths
    from orchestrator.service.address import Address
    from orchestrator.service.entrance import Entrance
    from orchestrator.service.host_board import HostBoard

PORT = 6724


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch serve", "the page on this computer, and the engine; prints a link that opens the page"),
        ("orch serve --link", "another link to the page that is served"),
        ("orch serve --host 0.0.0.0 --tls-cert crt.pem --tls-key key.pem --name orch.example.org", "for a team"),
        (
            "orch serve --oidc-issuer https://login.example.org --oidc-client-id orch --oidc-allow member:groups=ml",
            "people of a group sign in by an identity provider",
        ),
        ("orch serve --engine-only", "drive every job that was launched with --detach, until it is stopped"),
        ("orch serve --engine-only --until-idle", "and end when nothing is left to do"),
        ("ORCH_STORE=postgresql://orch@db/orch orch serve --engine-only", "several of these share a team's jobs"),
    ],
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this computer to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="Port; 0: a free one.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="TLS certificate with its chain, as PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key, as PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy with TLS stands before it.")
@click.option("--name", "names", multiple=True, help="A name by which it is called, with TLS; repeatable.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="What tasks of members may use of this computer: a variable, or infra:local; repeatable.",
)
@click.option("--no-ssh", is_flag=True, help="No member logs in to hosts; without it, to those of their clusters.")
@click.option("--oidc-issuer", default="", help="Address of the identity provider by which people sign in.")
@click.option("--oidc-client-id", default="", help="As which the identity provider knows this service.")
@click.option("--oidc-secret-file", type=click.Path(path_type=Path),
              help="File with the client's secret; without it ORCH_OIDC_SECRET; none for a public client.")  # fmt: skip
@click.option("--oidc-allow", multiple=True, metavar="ROLE:CLAIM=VALUE",
              help="Who may enter, such as member:groups=ml-team; repeatable; without one, no one may.")  # fmt: skip
@click.option("--oidc-scope", multiple=True, help="What is requested beside `openid profile`; repeatable.")
@click.option("--files", default="", metavar="URI",
              help="Bucket for files that members send, for several servers; without it this disk.")  # fmt: skip
@click.option("--link", is_flag=True, help="Print another link to the page that is served, and end.")
@click.option("--page-only", is_flag=True, help="Without the engine.")
@click.option("--engine-only", is_flag=True, help="Without page and API.")
@click.option("--until-idle", is_flag=True, help="With --engine-only: end when nothing is left to do.")
def serve(
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    names: tuple[str, ...],
    allowed: tuple[str, ...],
    *,
    behind_proxy: bool,
    no_ssh: bool,
    oidc_issuer: str,
    oidc_client_id: str,
    oidc_secret_file: Path | None,
    oidc_allow: tuple[str, ...],
    oidc_scope: tuple[str, ...],
    files: str,
    link: bool,
    page_only: bool,
    engine_only: bool,
    until_idle: bool,
) -> None:
    """Show runs, costs and clusters in a browser, and drive jobs without a terminal.

    It keeps no state in memory: end it at any time with Ctrl-C or kill, and start it again. The jobs continue.
    """
    from orchestrator.paths import load_paths

    if page_only and engine_only:
        raise UserError("--page-only and --engine-only exclude each other", "", "leave both out for page and engine")
    if until_idle and not engine_only:
        raise UserError("--until-idle is for the engine alone", "a page never idles", "add --engine-only")
    where = load_paths()
    if link:
        from orchestrator.service.address import request_link

        write_stdout(request_link(where))
    elif engine_only:
        _run_engine(where, until_idle=until_idle)
    else:
        from orchestrator.service.entrance import Entrance

        entrance = Entrance(
            host=host,
            port=port,
            names=names,
            certificate=tls_cert,
            key=tls_key,
            behind_proxy=behind_proxy,
        )
        provider = (oidc_issuer, oidc_client_id, oidc_secret_file, oidc_scope, oidc_allow)
        _serve_page(where, entrance, provider, allowed, files, with_engine=not page_only, ssh=not no_ssh)


def _run_engine(where: Paths, *, until_idle: bool) -> None:
    import signal
    import threading

    engine = _make_engine(where)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: engine.stop.set())
    _report(engine, until_idle=until_idle)


def _make_engine(where: Paths, hosts: HostBoard | None = None) -> UnattendedEngine:
    from orchestrator.cli.drawing.engine_log import EngineLog
    from orchestrator.engine.services import real_services
    from orchestrator.engine.unattended.engine import UnattendedEngine
    from orchestrator.engine.unattended.shared_files import SharedOpenFiles

    services = real_services(where)
    if hosts is None:
        return UnattendedEngine(where=where, services=services, narrators=EngineLog)
    from orchestrator.service.connections import choose_connection_limit

    services = replace(services, report_hosts=hosts.note, wants_chips=hosts.is_watched)
    shared = SharedOpenFiles(choose_connection_limit())
    return UnattendedEngine(where=where, services=services, narrators=EngineLog, files=shared)


def _report(engine: UnattendedEngine, *, until_idle: bool) -> None:
    from orchestrator.engine.unattended.engine import run_single_engine

    try:
        ran = run_single_engine(engine, until_idle=until_idle)
    except KeyboardInterrupt:
        engine.stop.set()
        write_stderr("the engine ends; its work is recorded")
        return
    if not ran:
        write_stderr("an engine is running on this computer already")


def _serve_page(
    where: Paths,
    entrance: Entrance,
    provider: tuple[str, str, Path | None, Sequence[str], Sequence[str]],
    allowed: tuple[str, ...],
    files: str,
    *,
    with_engine: bool,
    ssh: bool,
) -> None:
    import threading

    from orchestrator import __version__

    try:
        from orchestrator.service.host_board import HostBoard
        from orchestrator.service.member_rules import MemberRules
        from orchestrator.service.oidc_settings import read_oidc_settings
        from orchestrator.service.server import serve_pages
    except ModuleNotFoundError as error:
        raise UserError("the page needs more packages", str(error), install_command("server")) from error
    settings = read_oidc_settings(*provider)
    hosts = HostBoard()
    stop, failures = threading.Event(), list[OrchError]()
    engine = _make_engine(where, hosts) if with_engine else None

    def drive_jobs(engine: UnattendedEngine) -> None:
        try:
            _report(engine, until_idle=False)
        except OrchError as error:  # such as: the servers have another key
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=drive_jobs, args=(engine,)) if engine is not None else None

    def start(address: Address, link: str) -> None:
        _announce(address, link)
        if thread is not None:
            thread.start()

    try:
        wake = _leave_to_engine if engine is None else lambda: None
        rules = MemberRules(allowed=frozenset(allowed), ssh=ssh)
        serve_pages(where, entrance, __version__, start, stop, wake, hosts, rules, settings, files)
    except KeyboardInterrupt:
        write_stderr("the page ends; jobs continue")
    finally:
        if engine is not None and thread is not None and thread.ident is not None:
            engine.stop.set()
            thread.join()
    if failures:
        raise failures[0]


def _leave_to_engine() -> None:
    """Start the engine that carries an order out, unless one works."""
    from orchestrator.engine.unattended.handover import start_engine

    start_engine()


def _announce(address: Address, link: str) -> None:
    import sys

    from orchestrator.paths import load_paths
    from orchestrator.service.address import find_folder, make_login_url

    write_stdout(make_login_url(address, link))
    sys.stdout.flush()  # a program that reads it waits for it
    write_stderr(
        f"orch serves {address.url}; the link above opens it once, within 15 minutes: orch serve --link for another",
        f"programs: {address.url}/openapi.json, with the token in {find_folder(load_paths()) / 'token'}",
        "Ctrl-C ends the page and the engine; jobs continue",
    )
