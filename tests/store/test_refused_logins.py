"""A login that PostgreSQL refuses: whether it is for the password, by its code and not by the words of its language."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from support.orch_process import until
from support.postgres import PASSWORD, PostgresServer

from orchestrator.store.login_refusal import SUCCESS, read_sqlstate
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


def test_a_refusal_is_known_by_its_code(server: PostgresServer) -> None:
    with refused(address_of(server, "narrow", "wrong")) as error:
        assert read_sqlstate(error) == "28P01" and is_refused_password(error)
    with refused(address_of(server, "idle")) as error:
        assert read_sqlstate(error) == "28000" and is_refused_password(error)
    with refused(address_of(server, "narrow", database="absent")) as error:
        assert read_sqlstate(error) == "3D000" and not is_refused_password(error)
    with psycopg.connect(address_of(server, "narrow")), refused(address_of(server, "narrow")) as error:
        assert error.pgconn is not None and error.pgconn.used_password, "it was taken"
        assert read_sqlstate(error) == "53300" and not is_refused_password(error)
    until("the server counts the other connection as ended", lambda: read_sqlstate(error) == SUCCESS)
    assert not is_refused_password(error)


def test_another_language_says_the_same(server: PostgresServer) -> None:
    with refused(address_of(server, "narrow", "wrong%20'%5C")) as error:
        error.args = ("FATAL:  Passwort-Authentifizierung fehlgeschlagen",)
        assert is_refused_password(error)


def test_a_password_is_not_given_up_as_too_many_are_connected(server: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nformer\n")
    file.chmod(0o600)
    tried: list[str] = []

    def connect(more: dict[str, str]) -> psycopg.Connection[tuple[object, ...]]:
        tried.append(more["password"])
        return psycopg.connect(address_of(server, "narrow").replace(f":{PASSWORD}", ""), **more)  # type: ignore[arg-type]  # texts

    environ = {"ORCH_STORE_PASSWORD_FILE": str(file)}
    location = f"postgresql://narrow@127.0.0.1:{server.port}/postgres"
    with (
        psycopg.connect(address_of(server, "narrow")),
        pytest.raises(psycopg.OperationalError, match="too many connections"),
    ):
        connect_with_passwords(location, environ, connect)
    assert tried == [PASSWORD], "the next line is for a password that was refused"


def test_a_server_that_does_not_answer_is_no_refusal() -> None:
    with refused("postgresql://a:b@127.0.0.1:1/x") as error:
        assert not is_refused_password(error)
