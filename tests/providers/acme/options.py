"""The options of the invented cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.options import Allowed, DriverOptions, arg, derived, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeOptions:
    """What a task asks of the invented cloud."""

    tenant: str = setting(
        "",
        "tenant that pays",
        "a tenant's name",
        config=True,
        flag="NAME",
        flag_help="Tenant instead of the configured one",
    )
    open_port: bool = setting(True, "open port 22 to your address")
    networks: tuple[str, ...] = setting((), "networks to join", "a network's name")
    cooling: Literal["", "air", "water"] = arg("", "how the machines are cooled")
    hours: float | None = arg(
        None, "how long they are kept", allowed=Allowed(least=1, most=100, why="from 1 to 100 hours", step="hours: 6")
    )
    image: str = derived(
        "", allowed=Allowed(pattern=r"[a-z]+", why="images have lower-case names", step="image_id: plain")
    )


OPTIONS = DriverOptions(kind=AcmeOptions, title="Acme Cloud", owner="Acme has")
