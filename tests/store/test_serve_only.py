"""The service as the only client of a team's store: other logins are refused, and the password changes meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from support.postgres import PASSWORD, PostgresServer
from test_store_audit import audit_of

from orchestrator.errors import AccessError, ConflictError, OrchError, UserError
from orchestrator.storage.bucket import Bucket
from orchestrator.store import serve_only
from orchestrator.store.backup import back_up
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.location import describe_location
from orchestrator.store.password_file import PASSWORD_FILE_VARIABLE, read_passwords, write_passwords
from orchestrator.store.read import open_reader_at
from orchestrator.store.restore import fetch_backup, restore_store
from orchestrator.store.serve_only import ServeOnlyChanges, ServePlan
from orchestrator.store.server_login import ServerLogin
from orchestrator.store.store import Store

URL = "https://orch.example.org"


@dataclass(frozen=True, kw_only=True)
class Team:
    """A store of the login orch, with the member ann, and a login for servers that does not exist yet."""

    owner: str
    member: str
    login: ServerLogin

    @property
    def of_servers(self) -> str:
        """The address with the login of the servers, without a password."""
        return describe_location(self.owner, login=self.login.name) + "?" + self.owner.partition("?")[2]

    def serve_only(self) -> ServePlan:
        with ServeOnlyChanges(self.owner) as store:
            plan = store.plan_serving(URL, self.login.name)
            store.serve_only(plan, self.login, self.login.prepare()[0])
        self.login.finish()
        return plan


@pytest.fixture
def team(postgres: PostgresServer, tmp_path: Path) -> Team:
    owner = postgres.new_store()
    member = postgres.new_member("ann", owner)
    name = "servers_" + owner.rpartition("%3D")[2]
    return Team(owner=owner, member=member, login=ServerLogin(location=owner, name=name, file=tmp_path / "password"))


def in_child(work: Callable[[], object], *, deadly: int = 0) -> bool:
    """Do something as another process, without the file of this one; return whether it was killed.

    It kills itself at its n-th connection, commit or rename of a file, where `deadly` is n.
    """
    child = os.fork()
    if child == 0:
        try:
            left = [deadly]

            def point(*_: object) -> None:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            for name in ("engine_connect", "commit"):
                event.listen(Engine, name, point)
            sys.addaudithook(lambda name, _: point() if name == "os.rename" else None)
            os.environ.pop(PASSWORD_FILE_VARIABLE, None)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def no_faults(team: Team) -> bool:
    return not in_child(lambda: assert_equal(find_store_faults(team.owner), ()))


def assert_equal(found: object, expected: object) -> None:
    assert found == expected


def refused(opening: Callable[[], object]) -> OrchError:
    with pytest.raises(OrchError) as caught:
        opening()
    assert len(caught.value.lines()) <= 5
    return caught.value


def test_only_the_login_of_the_servers_uses_the_tables(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(team.member) as store:
        store.open_cluster("mine", "")
        plan = team.serve_only()
        assert (plan.losing, plan.creates_login) == (("ann",), True)
        refused(lambda: store.open_cluster("more", "by a command that had opened the store before"))
    for opening in (lambda: Store(team.member), lambda: open_reader_at(team.member)):
        error = refused(opening)
        assert (error.exit_status, error.code) == (4, "served")
        assert f"export ORCH_SERVER={URL}" in error.next_step
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(team.login.file))
    with Store(team.of_servers) as store:
        assert store.user == team.login.name
        store.open_cluster("more", "")
    with open_reader_at(team.of_servers) as reader:
        assert [one.name for one in reader.clusters()] == ["mine", "more"]
    assert no_faults(team)
    assert any(URL in one.what and "ann" in one.what for one in audit_of(team.of_servers)[0])


def test_an_older_orch_prints_the_address_of_the_service(team: Team) -> None:
    """It knows no such store, and quotes the server's error."""
    import psycopg

    with Store(team.member) as store:
        store.open_cluster("mine", "")
    team.serve_only()
    for table in ("meta", "clusters", "events"):
        with psycopg.connect(team.member) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            raw.execute(f"SELECT * FROM {table}".encode())
        assert str(caught.value).split("\n")[0].endswith(f"export ORCH_SERVER={URL}")


FORBIDDEN = (
    "SELECT * FROM events",
    "SELECT * FROM clusters",
    "SELECT * FROM intents",
    "SELECT * FROM meta WHERE key = 'installation'",
    "SELECT count(*) FROM meta",
    "SELECT orch_change('{}')",
    "SELECT orch_note_backup('')",
    "DELETE FROM leases",
    "UPDATE clusters SET summary = ''",
    "INSERT INTO provider_records VALUES ('a', 'b', 'c')",
    "CREATE POLICY mine ON meta USING (true)",
    "ALTER TABLE meta DISABLE ROW LEVEL SECURITY",
    "SET row_security = off; SELECT * FROM meta",
    "DROP FUNCTION orch_refuse_direct_client()",
    "EXPLAIN ANALYZE SELECT * FROM meta",
    "CREATE OR REPLACE FUNCTION orch_refuse_direct_client() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
)


def test_a_login_that_lost_its_rights_finds_no_way_around(team: Team) -> None:
    import psycopg

    with Store(team.member) as store:
        store.open_cluster("mine", "")
    team.serve_only()
    before = audit_of(team.owner)
    for statement in FORBIDDEN:
        with psycopg.connect(team.member, autocommit=True) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute(statement.encode())
    assert audit_of(team.owner) == before


def test_rights_of_a_group_and_of_everyone_are_taken(team: Team, postgres: PostgresServer) -> None:
    import psycopg

    schema = team.owner.rpartition("%3D")[2]
    bob = postgres.new_login("bob", team.owner)
    postgres.sql(f"DROP ROLE IF EXISTS group_{schema}; CREATE ROLE group_{schema}; GRANT group_{schema} TO bob")
    postgres.sql(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC; GRANT SELECT ON {schema}.clusters TO PUBLIC")
    postgres.sql(f"GRANT INSERT ON {schema}.clusters TO group_{schema}")
    postgres.sql(f"GRANT EXECUTE ON FUNCTION {schema}.orch_change(json) TO bob")
    team.serve_only()
    for statement in ("SELECT * FROM clusters", "INSERT INTO clusters DEFAULT VALUES", "SELECT orch_change('{}')"):
        with psycopg.connect(bob) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute(statement.encode())


def test_rights_on_columns_are_taken(team: Team, postgres: PostgresServer) -> None:
    import psycopg

    schema, colin = team.owner.rpartition("%3D")[2], postgres.new_login("colin", team.owner)
    postgres.sql(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC; GRANT SELECT (digest) ON {schema}.tokens TO colin")
    postgres.sql(f"GRANT SELECT (role) ON {schema}.tokens TO PUBLIC")
    team.serve_only()
    for column in ("digest", "role"):
        with psycopg.connect(colin) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute(f"SELECT {column} FROM tokens".encode())


def test_who_loses_rights_for_good_is_named(team: Team, postgres: PostgresServer) -> None:
    """The store knows what a member may do, and not what an administrator gave another login."""
    import psycopg

    schema, board = team.owner.rpartition("%3D")[2], postgres.new_login("board", team.owner)
    postgres.sql(f"GRANT USAGE ON SCHEMA {schema} TO board; GRANT SELECT ON {schema}.jobs TO board")
    plan = team.serve_only()
    assert (plan.losing, plan.unrestored, plan.served.revoked) == (("ann", "board"), ("board",), ("ann",))
    assert any("may not: ann, board" in one.what for one in audit_of(team.owner)[0])
    again = team.serve_only()
    assert again.losing == (), "a login that may read why has nothing more to lose"
    with ServeOnlyChanges(team.owner) as store:
        store.open_again()
    Store(team.member).close()
    with psycopg.connect(board) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute(f"SELECT * FROM {schema}.jobs".encode())


def test_who_can_always_return_is_named(team: Team, postgres: PostgresServer) -> None:
    postgres.new_login("boss", team.owner)
    postgres.sql("ALTER ROLE boss SUPERUSER")
    with ServeOnlyChanges(team.owner) as store:
        plan = store.plan_serving(URL, team.login.name)
    assert {"boss", "orch"} <= {one.name for one in plan.able_to_return if one.always}
    assert plan.owner == "orch"


POWERS = {
    "by_attribute": "ALTER ROLE {login} BYPASSRLS",
    "by_reading": "GRANT pg_read_all_data TO {login}",
    "by_writing": "GRANT pg_write_all_data TO {login}",
    "by_program": "GRANT pg_execute_server_program TO {login}",
    "by_servers": "GRANT {servers} TO {login}",
    "by_set_role": "ALTER ROLE {login} NOINHERIT; GRANT {group} TO {login}; GRANT {servers} TO {group}",
    "by_super_role": "CREATE ROLE {login}_role SUPERUSER; GRANT {login}_role TO {login}",
    "by_replication": "ALTER ROLE {login} REPLICATION",
}


def test_who_would_stay_a_direct_client_is_refused_until_agreed_to(team: Team, postgres: PostgresServer) -> None:
    team.serve_only()
    servers, group = team.login.name, f"group_of_{team.login.name}"
    postgres.sql(f"CREATE ROLE {group}")
    try:
        for name, change in POWERS.items():
            postgres.new_login(name, team.owner)
            postgres.sql(change.format(login=name, servers=servers, group=group))
        with ServeOnlyChanges(team.owner) as store:
            plan = store.plan_serving(URL, servers)
            assert {one.name for one in plan.unagreed} == set(POWERS)
            assert {one.name: one.power for one in plan.unagreed}["by_set_role"] == f"member of {servers}"
            with pytest.raises(AccessError, match="would still use the tables") as caught:
                store.serve_only(plan, team.login, "x" * 20)
            assert "--allow by_set_role" in caught.value.next_step and len(caught.value.lines()) <= 5
            agreed = store.plan_serving(URL, servers, allowed=[*POWERS])
            assert agreed.unagreed == () and set(plan.unagreed) < set(agreed.able_to_return)
    finally:  # the server is that of other tests, too
        postgres.sql(f"DROP ROLE {', '.join([*POWERS, group, 'by_super_role_role'])}")


def test_a_session_that_keeps_the_tables_locked_is_named(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    team.serve_only()
    monkeypatch.setattr(serve_only, "LOCK_SECONDS", 0.1)
    with psycopg.connect(team.member) as raw:
        raw.execute("LOCK TABLE clusters IN ACCESS SHARE MODE")
        with ServeOnlyChanges(team.owner) as store, pytest.raises(ConflictError, match="stay locked") as caught:
            store.open_again()
        assert f"{raw.info.backend_pid} of 'ann'" in caught.value.why
        assert f"pg_terminate_backend({raw.info.backend_pid})" in caught.value.next_step
    with ServeOnlyChanges(team.owner) as store:
        store.open_again()


def test_the_store_is_opened_again_for_who_had_it(team: Team) -> None:
    team.serve_only()
    team.serve_only()  # what is on record of who lost their rights stays
    with ServeOnlyChanges(team.owner) as store:
        assert store.open_again().revoked == ("ann",)
    with Store(team.member) as store:
        store.open_cluster("mine", "")
    with ServeOnlyChanges(team.owner) as store, pytest.raises(UserError, match="open to its members"):
        store.open_again()
    assert no_faults(team)


def test_no_login_is_let_in_meanwhile(team: Team) -> None:
    team.serve_only()
    with Store(team.owner) as store:
        with pytest.raises(ConflictError, match="through its service alone"):
            store.change_member("ann")
        store.change_member(team.login.name)  # it may lack rights after an upgrade
        store.change_member("ann", revoke=True)


def test_a_member_and_a_file_cannot_do_it(team: Team, tmp_path: Path) -> None:
    with ServeOnlyChanges(team.member) as store, pytest.raises(AccessError, match="only the login that owns"):
        store.plan_serving(URL)
    with ServeOnlyChanges(tmp_path / "orch.db") as store, pytest.raises(UserError, match="no logins"):
        store.plan_serving(URL)
    for address in ("orch.example.org", "https://a b", "https://a'; DROP TABLE meta; --", "https://a/%s", "file:///x"):
        with ServeOnlyChanges(team.owner) as store, pytest.raises(UserError, match="not the address"):
            store.plan_serving(address)


def test_an_owner_without_the_right_to_make_logins_learns_what_to_do(team: Team, postgres: PostgresServer) -> None:
    schema = team.owner.rpartition("%3D")[2]
    keeper = postgres.new_login("keeper", team.owner)
    postgres.sql(f"ALTER SCHEMA {schema} OWNER TO keeper")
    for (name,) in postgres.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"):
        postgres.sql(f"ALTER TABLE {schema}.{name} OWNER TO keeper")
    with ServeOnlyChanges(keeper) as store:
        plan = store.plan_serving(URL, team.login.name)
        with pytest.raises(AccessError, match="may not make the login") as caught:
            store.serve_only(plan, team.login, "x" * 20)
    assert "CREATEROLE" in caught.value.next_step
    with Store(team.member) as store:
        store.open_cluster("mine", "nothing was changed")


# --- the password -------------------------------------------------------------------------------------------------


def test_the_former_password_opens_nothing_and_its_sessions_end(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    team.serve_only()
    (first,) = read_passwords(team.login.file)
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(team.login.file))
    stolen = psycopg.connect(team.of_servers, password=first, autocommit=True)
    with Store(team.of_servers) as store, open_reader_at(team.of_servers) as reader:
        in_child(team.serve_only)
        with pytest.raises(psycopg.OperationalError):
            stolen.execute("SELECT 1")
        (second,) = read_passwords(team.login.file)
        assert first != second and not team.login.takes(first) and team.login.takes(second)
        store.open_cluster("mine", "on a session that was ended")
        assert [one.name for one in reader.clusters()] == ["mine"]
    write_passwords(team.login.file, (first,))
    error = refused(lambda: Store(team.of_servers))
    assert "ORCH_SERVER=" in error.next_step and PASSWORD_FILE_VARIABLE in error.next_step
    assert first not in "".join(error.lines())


@pytest.mark.slow
def test_servers_read_and_write_while_the_password_changes(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection is new, so each logs in. The other file is that of another computer, prepared before."""
    team.serve_only()
    (first,) = read_passwords(team.login.file)
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(team.login.file))
    over, problems, count = threading.Event(), list[BaseException](), [0]

    def work() -> None:
        while not over.is_set():
            try:
                with Store(team.of_servers) as store:
                    store.event("", "test", "one")
                with open_reader_at(team.of_servers) as reader:
                    reader.clusters()
                count[0] += 1
            except BaseException as error:
                problems.append(error)
                return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(3):
            in_child(team.serve_only)
            before = count[0]
            while count[0] < before + 2 and not problems:
                over.wait(0.02)
    finally:
        over.set()
        worker.join()
    assert not problems, problems
    assert read_passwords(team.login.file) != (first,)


@pytest.mark.slow
def test_a_rotation_that_is_killed_anywhere_is_completed_by_the_same_command(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(team.login.file))
    in_child(team.serve_only)
    deadly, killed = 0, True
    while killed:
        deadly += 1
        killed = in_child(team.serve_only, deadly=deadly)
        with Store(team.of_servers) as store:  # a server logs in, wherever the command was killed
            store.event("", "test", str(deadly))
    assert deadly > 5
    assert len(read_passwords(team.login.file)) == 1
    assert no_faults(team)


def test_a_database_that_asks_for_no_password_is_named(team: Team, postgres: PostgresServer) -> None:
    """On the socket of this server, `trust` is set for every login."""
    local = f"postgresql:///postgres?host={postgres.socket_folder}&port={postgres.port}&" + team.owner.partition("?")[2]
    team.serve_only()
    login = ServerLogin(location=local, name=team.login.name, file=team.login.file)
    with pytest.raises(AccessError, match="without its password"):
        login.finish()


def test_the_password_is_in_no_message_log_or_record(team: Team, postgres: PostgresServer) -> None:
    postgres.sql("ALTER SYSTEM SET log_statement = 'all'")
    postgres.sql("SELECT pg_reload_conf()")
    team.serve_only()
    (password,) = read_passwords(team.login.file)
    assert team.login.file.stat().st_mode & 0o777 == 0o600
    assert password not in (postgres.root / "log").read_text()
    assert "ALTER ROLE" in (postgres.root / "log").read_text() or "CREATE ROLE" in (postgres.root / "log").read_text()
    assert all(password not in str(one) for one in audit_of(team.owner)[0])
    assert password not in repr(team.login)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [("", 0o600, "no line"), ("x\n", 0o644, "others may read"), ("x" * 5000, 0o600, "more than"), (None, 0, "cannot")],
)
def test_a_password_file_that_is_no_secret_is_refused(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "given"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(file))
    bare = team.owner.replace(f":{PASSWORD}@", "@")
    for opening in (lambda: Store(bare), lambda: open_reader_at(bare)):
        assert why in str(refused(opening))


def test_two_passwords_are_refused(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_passwords(tmp_path / "given", (PASSWORD,))
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(tmp_path / "given"))
    with pytest.raises(UserError, match="two passwords"):
        Store(team.owner)
    Store(team.owner.replace(f":{PASSWORD}@", "@")).close()


def test_a_restored_store_is_closed_to_members_as_before(team: Team, tmp_path: Path) -> None:
    bucket = Bucket.open((tmp_path / "bucket").as_uri())
    team.serve_only()
    back_up(team.owner, bucket, 1e9)
    (tmp_path / "scratch").mkdir()
    file, head = fetch_backup(bucket.uri, tmp_path / "scratch")
    restore_store(file, head, team.owner, replace_present=True)
    error = refused(lambda: Store(team.member))
    assert error.code == "served"
    with ServeOnlyChanges(team.owner) as store:
        store.open_again()
    Store(team.member).close()
    file_store = tmp_path / "elsewhere" / "orch.db"
    restore_store(file, head, file_store)
    with open_reader_at(file_store) as reader:
        assert reader.served() is None, "a file keeps no one out"


def test_what_the_store_says_of_itself(team: Team) -> None:
    team.serve_only()
    with open_reader_at(team.owner) as reader:
        served = reader.served()
    assert served is not None and (served.address, served.login) == (URL, team.login.name)
