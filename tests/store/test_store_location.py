"""ORCH_STORE chooses the database; its password is shown nowhere."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.postgres import PASSWORD, PostgresServer

from orchestrator.distribution import install_command
from orchestrator.errors import OrchError, UserError
from orchestrator.paths import Paths
from orchestrator.store.location import describe_location, mask_secrets, store_location
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

PATHS = Paths(Path("/state"))


def test_without_the_variable_the_store_is_this_users_file() -> None:
    assert store_location({}, PATHS) == Path("/state/orch.db")
    assert store_location({"ORCH_STORE": "  "}, PATHS) == Path("/state/orch.db")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://db.example/orch",
        "postgres://me@db.example:5433/orch",
        "postgresql://me:secret@[::1]:5433/orch?sslmode=require",
        "postgresql:///orch?host=/run/postgresql",
        "postgresql://me:p%40ss@db.example/orch",
    ],
)
def test_an_address_of_postgresql_is_taken_as_it_is(address: str) -> None:
    assert store_location({"ORCH_STORE": address}, PATHS) == address


@pytest.mark.parametrize(
    "address",
    [
        "mysql://me:topsecret@db/orch",
        "/var/lib/orch.db",
        "postgresql://me:top#secret@db/orch",
        "postgresql://me:top/secret@db/orch",
        "postgresql://me:top@secret@db/orch",
        "postgresql://me:topsecret@db:port/orch",
        "topsecret",
        "postgresql://me:topsecret%zz@db/orch",
        "postgresql://me:topsecret%@db/orch",
        "postgresql://me:topsecret%00@db/orch",
        "postgresql://db/orch?password=top&secret",
        "postgresql://db/orch?password=top=secret",
    ],
)
def test_another_address_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(UserError) as caught:
        store_location({"ORCH_STORE": address}, PATHS)
    assert "secret" not in "\n".join(caught.value.lines())
    assert "postgresql://USER@HOST:PORT/DATABASE" in "\n".join(caught.value.lines())


def test_an_address_is_described_without_password_and_options() -> None:
    assert describe_location("postgresql://me:s3cr3t@db:5433/orch?password=s3cr3t") == "postgresql://me@db:5433/orch"
    assert describe_location("postgresql://me:s3/cr3t@db/orch") == "postgresql://(unreadable address)"
    assert describe_location(Path("/state/orch.db")) == "/state/orch.db"


def test_secrets_are_taken_out_as_written_and_as_decoded() -> None:
    address = "postgresql://me:p%40ss@db/orch?sslpassword=zwei"
    assert mask_secrets("p%40ss p@ss zwei", address) == "*** *** ***"


@pytest.mark.parametrize("password", ["a", "r", "1", "on", "true", "user"])
def test_a_short_password_is_taken_out_and_leaves_other_words_as_they_are(password: str) -> None:
    address = f"postgresql://me:{password}@db/orch"
    words = "authentication failed: truecolor users are on1y around 10.0.0.11"
    assert mask_secrets(words, address) == words
    assert mask_secrets(f"tried {password}, password={password}: {address}", address) == (
        "tried ***, password=***: postgresql://me:***@db/orch"
    )


def test_of_two_passwords_of_which_one_begins_the_other_nothing_is_left() -> None:
    address = "postgresql://me:correcthorse@db/orch?sslpassword=correcthorse2&passfile=correct"
    assert mask_secrets("correcthorse2 correcthorse correct xcorrecthorsex", address) == "*** *** *** x***x"


@given(
    password=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=30),
    before=st.text(max_size=20),
    behind=st.text(max_size=20),
)
def test_no_password_of_eight_characters_is_in_any_masked_text(password: str, before: str, behind: str) -> None:
    """Written as an address writes it, and as it is; a shorter one is masked as a whole word."""
    written = quote(password, safe="")
    address = f"postgresql://me:{written}@db/orch"
    assume("*" not in password)  # else the mask itself could complete it
    for secret in {password, written}:
        text = before + secret + behind if len(secret) >= 8 else f"{before} {secret} {behind}"
        shown = mask_secrets(text, address)
        assert "***" in shown
        assert len(secret) < 8 or secret not in shown


@pytest.mark.parametrize("fault", ["password", "port", "database"])
def test_the_password_is_in_no_error_no_trace_and_no_repr(postgres: PostgresServer, fault: str) -> None:
    secret = "wr0ng-S3cret" if fault == "password" else PASSWORD
    address = postgres.url().replace(PASSWORD, secret)
    if fault == "port":
        address = address.replace(str(postgres.port), "1")
    if fault == "database":
        address = address.replace("/postgres", "/nowhere")
    for opened in (Store, open_reader_at):
        with pytest.raises(OrchError) as caught:
            opened(address)
        said = "\n".join(caught.value.lines()) + "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert secret not in said
        assert caught.value.next_step


def test_the_password_is_in_no_event_no_repr_and_no_process_list(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    with Store(address) as store, open_reader_at(address) as reader:
        store.open_cluster("c", "")
        shown = [repr(store), repr(store._database), repr(store._database.engine), repr(reader)]
        shown += [repr(event) for event in reader.all_events()]
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert PASSWORD not in "\n".join(shown) + processes


def test_without_the_driver_the_error_names_what_to_install() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from orchestrator.errors import UserError
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
for opened in (Store, open_reader_at):
    try:
        opened("postgresql://me@127.0.0.1:1/orch")
    except UserError as error:
        print(error.next_step)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [install_command("server")] * 2


def test_the_light_reader_loads_no_database_library_but_its_own(tmp_path: Path) -> None:
    program = """
import pathlib, sys
from orchestrator.store.read import open_reader_at
with open_reader_at(pathlib.Path(sys.argv[1])) as reader:
    assert reader.clusters() == ()
print(sorted({"sqlalchemy", "psycopg"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "orch.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
