"""Where the service of this computer answers, and a new link to its page: for this computer's own programs."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import OrchError, UserError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.service.entrance import Entrance

DEFAULT_PORT = 6724
_SUFFIX = ".address.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a service of this computer is found, for its own programs.

    Attributes:
        host: The address on which it listens.
        url: The address as people call it.
        certificate: File of its TLS certificate; "" without TLS.
    """

    host: str
    port: int
    url: str
    certificate: str = ""

    @classmethod
    def of(cls, entrance: Entrance, port: int) -> Address:
        """Return the address of a server that listens on a port."""
        name = entrance.name_callers_use(port)
        return cls(
            host=entrance.host,
            port=port,
            url=f"{entrance.scheme}://{name}",
            certificate=str(entrance.certificate.absolute()) if entrance.certificate else "",
        )

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection from this computer."""
        if not self.certificate:
            return http.client.HTTPConnection(self.host, self.port, timeout=10)
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False  # it is called by its address here, and proven by the very certificate
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return http.client.HTTPSConnection(self.host, self.port, timeout=10, context=context)


def find_folder(paths: Paths) -> Path:
    """Return the folder of the service's token and address."""
    return paths.state / "service"


@contextlib.contextmanager
def note_address(folder: Path, address: Address) -> Generator[None]:
    """Keep an address in a file for this computer's programs. Each server has its own, named by its port."""
    file = folder / f"{address.port}{_SUFFIX}"
    make_private_folder(folder)
    write_whole(file, json.dumps(asdict(address)))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def request_link(paths: Paths) -> str:
    """Return a new link to the page of a service that runs on this computer: of the one that was started last.

    Raises:
        OrchError: None runs, or it does not answer.
    """
    folder, problem = find_folder(paths), ""
    files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files:  # a server that was killed has left its own
        try:
            token = (folder / "token").read_text(encoding="utf-8").strip()
            address = Address(**json.loads(file.read_text(encoding="utf-8")))
            connection = address.connect()
            name = address.url.partition("://")[2]
            connection.request("POST", "/v1/links", headers={"Authorization": f"Bearer {token}", "Host": name})
            answer = connection.getresponse()
            return make_login_url(address, str(json.loads(answer.read())["link"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = problem or f"{file.name}: {error}"
    raise OrchError("no service answers on this computer", problem, "orch serve   starts one")


def find_service_url(paths: Paths) -> str:
    """Return the address of the service of this computer that was started last.

    Raises:
        UserError: None was started here.
    """
    files = sorted(find_folder(paths).glob(f"*{_SUFFIX}"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise UserError("no service is started on this computer", "so its address is not known", "--url https://NAME")
    return Address(**json.loads(files[-1].read_text(encoding="utf-8"))).url


def make_login_url(address: Address, link: str) -> str:
    """Return the address that opens one session. Browsers do not send what is behind the #, so no log has it."""
    return f"{address.url}/login#{link}"
