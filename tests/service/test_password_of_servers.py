"""Two servers of one store, each with its own file of the database's password, which is changed while they answer."""

from __future__ import annotations

import shutil
import threading
from http.client import HTTPException
from pathlib import Path

import pytest
from service_site import Served, serve
from support.orch_process import Orch, until
from support.postgres import postgres_server

from orchestrator.store.password_file import read_passwords

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_no_request_fails_while_the_password_of_servers_is_changed(tmp_path: Path) -> None:
    with postgres_server() as server:
        address = server.new_store()
        schema = "?" + address.partition("?")[2]
        files = [tmp_path / name / "password" for name in ("first", "second")]
        owner = Orch(tmp_path, {"ORCH_STORE": address})
        owner.ok("store", "upgrade")
        url = "https://orch.example.org"
        owner.ok("store", "serve-only", url, "--login", "servers", "--password-file", str(files[0]), "--yes")
        files[1].parent.mkdir()
        shutil.copy(files[0], files[1])
        of_servers = f"postgresql://servers@127.0.0.1:{server.port}/postgres{schema}"
        computers = [
            Orch(file.parent, {"ORCH_STORE": of_servers, "ORCH_STORE_PASSWORD_FILE": str(file)}) for file in files
        ]
        with serve(computers[0]) as first, serve(computers[1]) as second:
            over, answers = threading.Event(), {first.port: list[str](), second.port: list[str]()}

            def ask(site: Served) -> None:
                while not over.is_set():
                    try:
                        answer = site.ask("/v1/runs")
                        answers[site.port].append(str(answer.status) if answer.status == 200 else answer.text)
                        made = site.ask("/v1/links", method="POST", content_length="0")
                        answers[site.port].append(str(made.status // 100) if made.status < 300 else made.text)
                    except (OSError, HTTPException) as error:
                        answers[site.port].append(repr(error))

            clients = [threading.Thread(target=ask, args=(site,)) for site in (first, second)]
            for client in clients:
                client.start()
            try:
                before = read_passwords(files[0])
                computers[0].ok("store", "password", "--prepare")
                shutil.copy(files[0], files[1])
                computers[0].ok("store", "password")
                assert read_passwords(files[0]) == read_passwords(files[1])[:1] != before
                for site in (first, second):
                    known = len(answers[site.port])
                    until("it answers with the new password", lambda: len(answers[site.port]) > known + 4)  # noqa: B023  # called in this turn alone
            finally:
                over.set()
                for client in clients:
                    client.join()
            assert {one for some in answers.values() for one in some} == {"200", "2"}, answers
