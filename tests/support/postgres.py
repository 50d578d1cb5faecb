"""A real PostgreSQL server for tests, in its own folder, on a free loopback port and a Unix socket.

    with postgres_server() as server:
        address = server.new_store()

PostgreSQL refuses to run as root, so a root's tests run it as the system user postgres, or nobody. It is stopped at
the end, also after a failure; a server whose tests were killed ends with its parent's pipe (see _WATCHER).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PASSWORD = "s3cr3t-of-the-test"  # no real one
_SPEED = ("fsync=off", "full_page_writes=off", "max_connections=60", "shared_buffers=16MB")

# Runs the server as its child, and ends it immediately when standard input ends: by us, or because we were killed.
# "shutdown" on standard input lets it end as an administrator would.
_WATCHER = """
"$@" & server=$!
signal=QUIT
if read -r word && [ "$word" = shutdown ]; then signal=INT; fi
kill -$signal $server 2>/dev/null
wait $server
"""


@dataclass
class PostgresServer:
    """A running server. Its user is `orch`, who needs PASSWORD over TCP and nothing over the socket."""

    root: Path
    port: int
    programs: Path
    process: subprocess.Popen[bytes] | None = None
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def socket_folder(self) -> Path:
        return self.root / "s"

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://orch:{PASSWORD}@127.0.0.1:{port or self.port}/{database}"

    def new_store(self, *, port: int | None = None) -> str:
        """The address of an empty place for tables: its own schema, which is made faster than a database."""
        name = f"t{next(self._names)}"
        self.sql(f"CREATE SCHEMA {name}")
        return self.url(port=port) + f"?options=-csearch_path%3D{name}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(
            self.url(database), autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        command = [
            *_as_other_user(), str(self.programs / "postgres"), "-D", str(self.root / "data"), "-p", str(self.port),
            "-k", str(self.socket_folder), "-h", "127.0.0.1",
        ]  # fmt: skip
        for setting in _SPEED:
            command += ["-c", setting]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", _WATCHER, "watcher", *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        self._await_answer()

    def stop(self, *, orderly: bool = False) -> None:
        """End it and its connections. orderly: as an administrator's restart, so that it can be started again."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None
        if orderly:
            process.stdin.write(b"shutdown\n")
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def _await_answer(self) -> None:
        import psycopg

        give_up = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > give_up or (self.process is not None and self.process.poll() is not None):
                    self.stop()
                    raise RuntimeError("PostgreSQL did not start: " + (self.root / "log").read_text()) from None
                time.sleep(0.05)
            else:
                return


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    programs = _programs()
    root = Path(tempfile.mkdtemp(prefix="orch-pg-"))  # not below pytest's folder, which is closed to other users
    server = PostgresServer(root, _free_port(), programs)
    try:
        server.socket_folder.mkdir()
        _make_data(server)
        server.start()
        yield server
    finally:
        try:
            server.stop()
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _make_data(server: PostgresServer) -> None:
    (server.root / "password").write_text(PASSWORD)
    if os.geteuid() == 0:
        user = _other_user()
        for path in (server.root, server.socket_folder, server.root / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
    command = [
        *_as_other_user(), str(server.programs / "initdb"), "-D", str(server.root / "data"), "-U", "orch", "-N",
        "--auth-host=scram-sha-256", "--auth-local=trust", f"--pwfile={server.root / 'password'}", "-E", "UTF8",
        "--locale=C",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")


def _programs() -> Path:
    folders = [Path(found).parent for found in [shutil.which("postgres")] if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
            return folder
    raise RuntimeError("the programs of PostgreSQL are missing: run scripts/bootstrap test")


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


def _as_other_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    user = _other_user()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
