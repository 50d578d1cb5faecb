"""What this computer knows of the ways to a slice's hosts: rules that were made, a key that was let in. Small files.

Written before anything is made, so that what is left behind is found again after a crash at any point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.providers.google.access import Access, Way
from orchestrator.providers.records import RecordFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The way to one slice's hosts. rules: targets of the requests that take its firewall rules away.

    opened: whether the slice was accepted. user, os_key: of OS Login, "" without it.
    """

    name: str
    token: str
    project: str
    zone: str
    way: Way
    jump: str
    rules: tuple[str, ...]
    opened: bool = False
    user: str = ""
    os_key: str = ""

    @property
    def access(self) -> Access:
        return Access(way=self.way, jump=self.jump)


class Gates(RecordFiles[Gate]):
    one = "how '{}' is reached"
    every = "the ways to Google's hosts"

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> Gate:
        fields |= {"way": Way(fields["way"]), "rules": tuple(fields["rules"])}
        return Gate(**fields)
