"""The threads of an engine: channels do not hold up each other or the engine, and of two engines one sends."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from receivers import MailReceiver, WebReceiver
from run_history import FAILURE, PLACE, History
from support.orch_process import Orch, until

from orchestrator.clock import SteadyClock
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.unattended import notifier as module
from orchestrator.engine.unattended.notifier import Notifier, notifying
from orchestrator.paths import load_paths
from orchestrator.plan.observed import IntentState
from orchestrator.store.store import Store


class Notes:
    """A narrator that keeps what it is given to note."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, words: str) -> None:
        self.lines.append(words)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "OTHER_POLL", "CONDITIONS_POLL"):
        monkeypatch.setattr(module, name, 0.1)


@pytest.fixture
def engines() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def configure(home: Path, text: str) -> None:
    (home / "config.toml").write_text("[notify]\n" + text)


def mail_settings(receiver: MailReceiver) -> str:
    return (
        f'email_to = ["a@b.org"]\nemail_from = "o@b.org"\nsmtp = "127.0.0.1:{receiver.port}"\nsmtp_security = "none"\n'
    )


def start(engines: ExitStack, notes: Notes | None = None, stop: threading.Event | None = None) -> Notifier:
    services: Services = real_services(load_paths())
    narrator: Any = notes or Notes()
    made = engines.enter_context(notifying(load_paths(), services, narrator, stop or threading.Event()))
    made.start()
    return made


def channel_of(name: str) -> Any:
    with Store(load_paths().database) as store:
        return store.channel(name)


def run(name: str) -> None:
    with Store(load_paths().database, SteadyClock(load_paths().state).now) as store:
        History(store, None).run(name, FAILURE)  # type: ignore[arg-type]  # no test here sets the time


def wait_for(name: str, *channels: str) -> None:
    until(name, lambda: all(channel_of(one) is not None for one in channels), 10)


def test_without_a_channel_there_is_no_thread(engines: ExitStack) -> None:
    before = set(threading.enumerate())  # a thread of an earlier test may end meanwhile
    start(engines).deliver_rest()
    assert set(threading.enumerate()) <= before


def test_what_happens_right_after_the_start_of_the_first_engine_is_sent(
    engines: ExitStack, own_home: Path, web: WebReceiver
) -> None:
    run("before")
    configure(own_home, f'webhook = "{web.url}"\n')
    notifier = start(engines)
    run("a")
    notifier.deliver_rest()
    assert [json.loads(post.body)["items"][0]["cluster"] for post in web.posts] == ["a"]


def test_a_channel_that_is_down_holds_up_neither_another_one_nor_the_end(
    engines: ExitStack, own_home: Path, web: WebReceiver, mail: MailReceiver
) -> None:
    mail.refuse = "554 never"
    configure(own_home, f'webhook = "{web.url}"\n{mail_settings(mail)}')
    notes = Notes()
    notifier = start(engines, notes)
    wait_for("both channels begin", "webhook", "email")
    run("a")
    began = time.monotonic()
    notifier.deliver_rest()
    assert time.monotonic() - began < 5 and len(web.posts) == 1
    until("the problem is on record", lambda: channel_of("email").problem != "", 5)
    assert channel_of("webhook").problem == "" and channel_of("webhook").delivered is not None
    assert "554" in channel_of("email").problem and channel_of("email").delivered is None
    assert [line for line in notes.lines if "notifications, email" in line]


def test_a_slow_channel_is_waited_for_a_bounded_time(
    engines: ExitStack, own_home: Path, web: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_SECONDS", 0.5)
    configure(own_home, f'webhook = "{web.url}"\n')
    notifier = start(engines)
    wait_for("it begins", "webhook")
    web.drip = True
    run("a")
    began = time.monotonic()
    notifier.deliver_rest()
    assert time.monotonic() - began < 3


def test_of_two_engines_one_sends_and_the_other_takes_over(
    engines: ExitStack, own_home: Path, web: WebReceiver
) -> None:
    configure(own_home, f'webhook = "{web.url}"\n')
    stops = [threading.Event(), threading.Event()]
    for stop in stops:
        start(engines, stop=stop)
    wait_for("it begins", "webhook")
    for name in ("a", "b", "c"):
        run(name)
    until("they arrive", lambda: len(web.posts) == 3, 10)
    stops[0].set()
    run("d")
    until("the fourth arrives", lambda: len(web.posts) == 4, 15)
    stops[1].set()
    assert len(set(web.ids())) == 4


def test_a_long_wait_is_found_and_sent_once(engines: ExitStack, own_home: Path, web: WebReceiver) -> None:
    configure(own_home, f'webhook = "{web.url}"\nwaiting_minutes = 1\nkinds = ["waiting"]\n')
    now = time.time()
    times = iter([now - 120.0] * 50)
    with Store(load_paths().database, lambda: next(times)) as store:
        history = History(store, None)  # type: ignore[arg-type]  # the times are above
        cluster = history.cluster()
        history.job(cluster)
        history.slice(cluster, 1, IntentState.ACCEPTED)
    for _ in range(2):  # a second engine finds the same condition
        with ExitStack() as engine:
            start(engine)
            until("it arrives", lambda: len(web.posts) >= 1, 10)
            time.sleep(0.5)
    (item,) = json.loads(web.posts[0].body)["items"]
    assert len(web.posts) == 1 and item["type"] == "waiting" and PLACE.zone in item["title"]


def test_a_wrong_configuration_is_noted_and_corrected_secrets_are_found(
    engines: ExitStack, own_home: Path, web: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(own_home, 'kinds = ["moonphase"]\nslack = "env:X"\n')
    notes = Notes()
    start(engines, notes)
    assert "moonphase" in notes.lines[0]
    configure(own_home, f'slack = "file:{own_home}/url"\n')
    monkeypatch.setattr(module, "NOTIFICATION_ROUND", type(module.NOTIFICATION_ROUND)(first=0.1, longest=0.1))
    start(engines, notes)
    wait_for("it begins", "slack")
    run("a")
    until("the missing secret is reported", lambda: "is not in file:" in channel_of("slack").problem, 10)
    (own_home / "url").write_text(web.url)
    until("it arrives", lambda: len(web.posts) == 1, 10)
    assert "text" in json.loads(web.posts[0].body)


@pytest.mark.slow
def test_a_detached_job_is_reported_by_the_engine_that_drives_it_and_no_secret_is_on_record(
    tmp_path: Path, web: WebReceiver
) -> None:
    secret = "whsec_" + "Y2FuYXJ5" * 6  # "canary" in base64
    orch = Orch(tmp_path, {"HOOK": secret, "ADDRESS": web.url})
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch" / "config.toml").write_text('[notify]\nwebhook = "env:ADDRESS"\nwebhook_secret = "env:HOOK"\n')
    (tmp_path / "task.yaml").write_text('name: mine\nresources: {infra: "local:1"}\nrun: sleep 8; exit 3\n')
    orch.ok("launch", "task.yaml", "--detach")
    try:
        until("the engine has ended", lambda: not orch.engines(), 60)
        document = json.loads(web.posts[-1].body)
        assert (document["type"], document["items"][0]["status"]) == ("failed", 3)
        assert web.posts[-1].headers["webhook-signature"].startswith("v1,")
        shown = orch.ok("notify", "-o", "json") + orch.ok("events", "-o", "json") + orch.ok("config", "list")
        (channel,) = json.loads(orch.ok("notify", "-o", "json"))["channels"]
        assert channel["delivered_at"] is not None and channel["problem"] is None
        kept = b"".join(path.read_bytes() for path in (tmp_path / "orch").rglob("*") if path.is_file())
        assert secret not in shown and secret.encode() not in kept and b"/hook" not in kept
    finally:
        with contextlib.suppress(AssertionError):
            orch.ok("down", "mine")
