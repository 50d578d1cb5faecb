"""Where the server listens, by which names it is called, and what proves it to its callers."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError

THIS_COMPUTER = ("127.0.0.1", "localhost", "::1")
_PORTS = {"http": 80, "https": 443}  # browsers leave these out of the name
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """How the service is reached.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for a free one.
        names: Names by which others call it, such as orch.example.org; with a port where it is not the usual one.
        certificate: File of its TLS certificate with the chain; None without TLS.
        key: File of the certificate's key.
        behind_proxy: Whether a proxy with TLS stands before it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False

    @property
    def is_secure(self) -> bool:
        """Whether callers reach it by https."""
        return self.certificate is not None or self.behind_proxy

    @property
    def scheme(self) -> str:
        """The scheme of its address."""
        return "https" if self.is_secure else "http"

    def check(self) -> None:
        """Refuse what would let others read along, or what no one could call.

        Raises:
            UserError: The options do not go together.
        """
        if self.host not in THIS_COMPUTER and not self.is_secure:
            raise UserError(
                f"the page is not served on {self.host} without TLS",
                "whoever reads along would have its tokens",
                "--tls-cert FILE --tls-key FILE, or --behind-proxy; or: ssh -L 6724:127.0.0.1:6724 THIS-COMPUTER",
            )
        if (self.certificate is None) != (self.key is None):
            raise UserError("a certificate needs its key", "", "--tls-cert FILE --tls-key FILE")
        for file in (self.certificate, self.key):
            if file is not None and not file.is_file():
                raise UserError(f"there is no file {file}", "", f"ls -l {file.parent}")
        if self.is_secure and not self.names:
            raise UserError(
                "the name of the service is missing", "it answers to its own names alone", "--name orch.example.org"
            )
        if wrong := next((name for name in self.names if not _NAME.fullmatch(name)), None):
            raise UserError(f"`{wrong[:60]}` is not a name", "", "--name orch.example.org   or orch.example.org:8443")

    def name_callers_use(self, port: int) -> str:
        """Return the name, with the port where it is not the usual one, by which callers reach it."""
        if not self.is_secure:
            host = f"[{self.host}]" if ":" in self.host else self.host
            return host if port == _PORTS["http"] else f"{host}:{port}"
        return self._with_port(self.names[0], port)

    def _with_port(self, name: str, port: int) -> str:
        """Return a name with the port, unless it has one, or a proxy or the scheme says it."""
        return name if self.behind_proxy or ":" in name or port == _PORTS["https"] else f"{name}:{port}"

    def list_hosts(self, port: int) -> frozenset[str]:
        """Return the values of the header Host that it answers to, at the port on which it listens."""
        named = {self._with_port(name, port) for name in self.names}
        own = () if self.certificate is not None else ("127.0.0.1", "localhost", "[::1]")
        return frozenset(named | {name if port == _PORTS["http"] else f"{name}:{port}" for name in own})

    def list_audiences(self, port: int) -> frozenset[str]:
        """Return the addresses that are this service's alone: its names. Other computers have a loopback address, too.

        One without a name is known by the address of this computer, which only programs of this computer reach.
        """
        hosts = {self._with_port(name, port) for name in self.names} or self.list_hosts(port)
        return frozenset(f"{self.scheme}://{host}" for host in hosts)


def name_network(address: str) -> str:
    """Return what stands for a caller in counts: an address, of IPv6 the network of 64 bits that one customer has."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(ipaddress.ip_network((known, 64), strict=False)) if known.version == 6 else str(known)
