"""The tokens that `orch login` keeps for services."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole

_LOGINS = "logins.json"


def keep_login(url: str, token: str, ca: str = "") -> None:
    """Keep a token for a service, readable by this user alone. It becomes the one that is used without an address."""
    logins = {known: login for known, login in read_logins().items() if known != url}
    folder = load_paths().state / "service"
    make_private_folder(folder)
    write_whole(folder / _LOGINS, json.dumps(logins | {url: {"token": token, "ca": ca}}))


def read_logins() -> dict[str, dict[str, str]]:
    """Return the kept tokens by the address of their service, the last login last."""
    try:
        kept: dict[str, dict[str, str]] = json.loads(Path(load_paths().state / "service" / _LOGINS).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return kept
