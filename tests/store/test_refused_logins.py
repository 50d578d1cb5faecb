"""A login that PostgreSQL refuses: the next password is tried, and the error has the reason that helps."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from support.postgres import PASSWORD, PostgresServer

from orchestrator.store.password_file import connect_with_passwords, is_refused_password


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> PostgresServer:
    postgres.sql(f"CREATE ROLE narrow LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1")
    postgres.sql(f"CREATE ROLE idle PASSWORD '{PASSWORD}'")
    return postgres


def address_of(server: PostgresServer, login: str, password: str = PASSWORD, database: str = "postgres") -> str:
    return f"postgresql://{login}:{password}@127.0.0.1:{server.port}/{database}"


@contextmanager
def refused(address: str) -> Generator[psycopg.OperationalError]:
    with pytest.raises(psycopg.OperationalError) as found:
        psycopg.connect(address)
    yield found.value


def test_what_refuses_after_a_password_was_sent_may_be_a_refusal_of_it(server: PostgresServer) -> None:
    with refused(address_of(server, "narrow", "wrong")) as error:
        assert is_refused_password(error)
    with refused(address_of(server, "idle")) as error:
        assert is_refused_password(error)


def test_another_language_says_the_same(server: PostgresServer) -> None:
    with refused(address_of(server, "narrow", "wrong%20'%5C")) as error:
        error.args = ("FATAL:  Passwort-Authentifizierung fehlgeschlagen",)
        assert is_refused_password(error)


@pytest.mark.parametrize("lines", [(PASSWORD, "former"), ("next", PASSWORD), (PASSWORD,)])
def test_too_many_connections_are_reported_as_such_whatever_the_other_line_is(
    server: PostgresServer, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    file = tmp_path / "password"
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(0o600)

    def connect(more: dict[str, str]) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(address_of(server, "narrow").replace(f":{PASSWORD}", ""), **more)  # type: ignore[arg-type]  # texts

    environ = {"ORCH_STORE_PASSWORD_FILE": str(file)}
    location = f"postgresql://narrow@127.0.0.1:{server.port}/postgres"
    with (
        psycopg.connect(address_of(server, "narrow")),
        pytest.raises(psycopg.OperationalError, match="too many connections"),
    ):
        connect_with_passwords(location, environ, connect)


def test_a_server_that_does_not_answer_is_no_refusal() -> None:
    with refused("postgresql://a:b@127.0.0.1:1/x") as error:
        assert not is_refused_password(error)
