"""Where the service of this computer answers, and a new link to its page: for this computer's own programs."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.paths import Paths

DEFAULT_PORT = 6724


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a service of this computer is found, for its own programs."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address of the page."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"


def find_folder(paths: Paths) -> Path:
    """Return the folder of the service's token and address."""
    return paths.state / "service"


def request_link(paths: Paths) -> str:
    """Return a new link to the page of the service that runs on this computer.

    Raises:
        OrchError: None runs, or it does not answer.
    """
    folder = find_folder(paths)
    try:
        found = json.loads((folder / "address.json").read_text(encoding="utf-8"))
        token = (folder / "token").read_text(encoding="utf-8").strip()
        address = Address(host=str(found["host"]), port=int(found["port"]))
        connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
        connection.request("POST", "/v1/links", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        link = json.loads(answer.read())["link"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OrchError("no service answers on this computer", str(error), "orch serve   starts one") from error
    return make_login_url(address, str(link))


def make_login_url(address: Address, link: str) -> str:
    """Return the address that opens one session."""
    return f"{address.url}/login?link={link}"
