"""moto in this process, the proxy before it, and an account of its own for each test."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from moto_account import MotoAccount
from moto_proxy import MotoProxy, moto_proxy

from orchestrator.providers.aws.session import _loader

_NUMBERS = count(200_000_000_000)  # of accounts


class Direct:
    """Clients straight to moto, by access key and region."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()

    def __call__(self, key: str, region: str, service: str = "ec2") -> Any:
        from botocore.config import Config
        from botocore.session import get_session

        with self._lock:
            if (key, region, service) not in self._made:
                session = get_session()
                session.register_component("data_loader", _loader(None))  # one copy of EC2's model is large enough
                session.set_credentials(key, "none")
                config = Config(retries={"total_max_attempts": 1}, proxies={})
                self._made[key, region, service] = session.create_client(
                    service, region, endpoint_url=self.url, config=config
                )
            return self._made[key, region, service]

    def forget(self, key: str) -> None:
        with self._lock:
            self._made = {place: client for place, client in self._made.items() if place[0] != key}


@pytest.fixture(scope="session")
def direct() -> Iterator[Direct]:
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # 1,300 images a region take a third of a second
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield Direct(f"http://{host}:{port}")
        finally:
            server.stop()


@pytest.fixture(scope="session")
def bench(direct: Direct, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MotoProxy, str]]:
    host, _, port = direct.url.removeprefix("http://").partition(":")
    with moto_proxy((host, int(port)), direct, tmp_path_factory.mktemp("moto")) as made:
        yield made


@pytest.fixture
def make_account(
    bench: tuple[MotoProxy, str], direct: Direct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], MotoAccount]]:
    """Make a new account and take on its credentials: moto gives each role that is assumed those of its account."""
    made: list[MotoAccount] = []
    proxy, url = bench
    proxy.seen.clear()
    proxy.own.clear()

    def make() -> MotoAccount:
        number = str(next(_NUMBERS))
        arn = f"arn:aws:iam::{number}:role/orch"
        sts = direct("AKIAMOTO000000000000", "us-east-1", "sts")
        key = sts.assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]["AccessKeyId"]
        account = MotoAccount(number, key, url, proxy, tmp_path)
        made.append(account)
        for name, value in account.env.items():
            monkeypatch.setenv(name, value)
        return account

    yield make
    for account in made:
        account.end_machines()
        direct.forget(account.key)


@pytest.fixture
def account(make_account: Callable[[], MotoAccount]) -> MotoAccount:
    return make_account()
