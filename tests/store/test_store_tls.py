"""Off loopback the server of a store proves its name by TLS, or nothing is sent to it.

The name store.example leads to this computer by `hostaddr`, and is off loopback like any name: where a name leads is
not known before the connection.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import PASSWORD, PostgresServer, postgres_server

from orchestrator.errors import UserError
from orchestrator.store.failures import StoreError
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.transport import secure_options

NAME = "store.example"
OPENERS = (Store, open_reader_at)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home without certificates, and no variables of libpq."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)


def certificate(folder: Path, name: str, file: str) -> Path:
    """A certificate for one name that is its own authority; its key is beside it."""
    path = folder / f"{file}.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-keyout", str(path.with_suffix(".key")), "-out", str(path), "-subj", f"/CN={name}",
         "-addext", f"subjectAltName=DNS:{name}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


def present(server: PostgresServer, crt: Path) -> None:
    """Let the server use TLS with this certificate from the next connection on."""
    data, key = server.root / "data", crt.with_suffix(".key")
    owner = data.stat()
    for source in (crt, key):
        place = data / f"server{source.suffix}"
        shutil.copyfile(source, place)
        os.chown(place, owner.st_uid, owner.st_gid)
        place.chmod(0o600)
    server.sql("ALTER SYSTEM SET ssl = on")
    server.sql("SELECT pg_reload_conf()")


def address(server: PostgresServer, *options: str, name: str = NAME) -> str:
    query = "&".join(("hostaddr=127.0.0.1", *options))
    return f"postgresql://orch:{PASSWORD}@{name}:{server.port}/postgres?{query}"


def test_a_server_without_tls_is_refused_and_gets_nothing(server: PostgresServer) -> None:
    server.sql("ALTER SYSTEM SET ssl = off")
    server.sql("SELECT pg_reload_conf()")
    for opened in OPENERS:
        with pytest.raises(StoreError, match="is not verified") as refused:
            opened(address(server, "sslrootcert=system"))
        assert "does not support SSL" in refused.value.why
        assert "sslrootcert=FILE" in refused.value.next_step


def test_the_right_name_and_authority_are_accepted_and_every_other_is_refused(
    server: PostgresServer, tmp_path: Path
) -> None:
    right, wrong = certificate(tmp_path, NAME, "right"), certificate(tmp_path, NAME, "wrong")
    present(server, right)
    with Store(address(server, f"sslrootcert={right}")) as store:
        store.event("c", "remark", "over TLS")
        with store._database.reading() as tx:
            assert tx.exec_driver_sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").scalar() is True
    with open_reader_at(address(server, f"sslrootcert={right}")) as reader:
        assert [event.what for event in reader.events("c")] == ["over TLS"]
    refused = (
        address(server, f"sslrootcert={wrong}"),
        address(server, f"sslrootcert={right}", name="other.example"),
        address(server),  # the authorities of the system
    )
    for opened in OPENERS:
        for place in refused:
            with pytest.raises(StoreError, match="is not verified") as error:
                opened(place)
            assert PASSWORD not in str(error.value) + error.value.why + error.value.next_step


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_a_weaker_mode_is_refused_before_a_connection(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for opened in OPENERS:
        with pytest.raises(UserError, match=f"sslmode={mode} does not verify") as refused:
            opened(address(server, f"sslmode={mode}"))
        assert "sslmode=verify-full" in refused.value.next_step
    monkeypatch.setenv("PGSSLMODE", mode)
    with pytest.raises(UserError, match=f"PGSSLMODE={mode} does not verify") as refused:
        Store(address(server))
    assert "unset PGSSLMODE" in refused.value.next_step


LOCAL = [
    "postgresql://u@127.0.0.1:5432/d", "postgresql://u@127.5.5.5/d", "postgresql://u@[::1]:5/d", "postgresql://u@localhost/d",
    "postgresql:///d?host=/var/run/postgresql", "postgresql:///d", "postgresql://u@127.0.0.1/d?sslmode=disable",
]  # fmt: skip
FAR = [
    "postgresql://u@10.0.0.1/d", "postgresql://u@db.example/d", "postgresql://u@db.example/d?hostaddr=127.0.0.1",
    "postgresql://u@127.0.0.1/d?host=db.example", "postgresql:///d?host=/run,db.example", "postgresql://u@[2001:db8::1]/d",
    "postgresql://u@localhost/d?hostaddr=10.0.0.1", "postgresql:///d?service=team", "postgresql://u@localhost.example/d",
    "postgresql://u:p@ss@10.0.0.1/d",
]  # fmt: skip


@pytest.mark.parametrize("location", LOCAL)
def test_this_computer_needs_no_tls(location: str) -> None:
    assert secure_options(location, {}, 160000) == {}


@pytest.mark.parametrize("location", FAR)
def test_every_other_place_is_verified(location: str) -> None:
    assert secure_options(location, {}, 160000) == {"sslmode": "verify-full", "sslrootcert": "system"}
    assert secure_options(location, {}, 150000) == {"sslmode": "verify-full"}
    own = secure_options(location, {"PGSSLROOTCERT": "/x"}, 160000)
    assert own == {"sslmode": "verify-full"}


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGSERVICE"])
def test_a_place_that_a_variable_names_is_verified(variable: str) -> None:
    assert secure_options("postgresql:///d", {variable: "10.0.0.1"}, 160000)["sslmode"] == "verify-full"
