"""The default preview of every example fits two screens and holds what a decision needs; -v adds every script once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Orch = Callable[..., Any]
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
COMMANDS = {path.name: ("plan", str(path)) for path in EXAMPLES} | {
    "one TPU host": ("train", "v5e-8", "--bucket", "gs://bbb", "model=300m", "--dry-run"),
    "two GPU hosts": ("train", "H100:8", "--num-nodes", "2", "--bucket", "s3://bbb", "model=1b", "--dry-run"),
    "four local hosts": ("train", "local:4", "--bucket", "file:///tmp/b", "model=tiny", "--dry-run"),
}


@pytest.fixture
def set_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    home.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(home)  # the workdir of examples: the checkout would be read for each
    (home / "config.toml").write_text('[aws]\ninstance_profile = "orch"\n')


@pytest.mark.usefixtures("set_up")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_default_preview_fits_and_shows_price_hosts_and_requests(orch: Orch, name: str) -> None:
    shown, document = orch(*COMMANDS[name]), json.loads(orch(*COMMANDS[name], "-o", "json").out)
    assert shown.status == 0, shown.err + shown.out
    lines = shown.out.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 80
    (create,) = (step for step in document["steps"] if step["do"] == "create_slice")
    hosts = create["spec"]["candidate"]["hosts"]
    price = create["spec"]["candidate"]["price_per_hour"]
    assert f"{hosts} host{'s' if hosts > 1 else ''}" in shown.out
    priced = f"${price:,.2f}/h for {hosts} host" if price is not None else "  price      not known"
    assert priced in shown.out or "your own machines" in shown.out
    requests = sum(1 for step in document["steps"] for _ in _requests(step.get("request")))
    assert re.search(rf"^In all: {requests} requests?, {hosts} hosts?\b", shown.out, re.M)
    assert sum(bool(re.match(r" *\d+\. ", line)) for line in lines) == sum(
        step["do"] != "wait" for step in document["steps"]
    ), "one line for each action"


@pytest.mark.usefixtures("set_up")
@pytest.mark.parametrize("name", COMMANDS)
def test_verbose_shows_every_script_exactly_once(orch: Orch, name: str) -> None:
    verbose = orch(*COMMANDS[name], "-v")
    assert verbose.status == 0 and "hunter2" not in verbose.out
    document = json.loads(orch(*COMMANDS[name], "-o", "json").out)
    scripts = {_text(step["script"]) for step in document["steps"] if "script" in step}
    assert scripts
    for script in scripts:
        block = "\n".join(f"      | {line}".rstrip() for line in script.removesuffix("\n").split("\n"))
        assert verbose.out.count(block) == 1


def _requests(request: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """All that one request stands for."""
    if request is None:
        return
    for one in (*request["before"], *request["after"]):
        yield from _requests(one)
    yield request


def _text(value: Any) -> str:
    """A text of the JSON preview as the text preview shows it."""
    if isinstance(value, str):
        return value
    if "parts" in value:
        return "".join(map(_text, value["parts"]))
    return "****" if "secret" in value else f"({value['unknown']})"
