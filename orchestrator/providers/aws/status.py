"""What EC2 reports of an instance beside its state: its status checks and scheduled events, in words. Pure.

DescribeInstanceStatus, EC2 API reference 2016-11-15 (read November 2026): SystemStatus is about the machine below the
instance, InstanceStatus about the instance itself. The description of an event that is over begins with "[Completed]"
or "[Canceled]".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from orchestrator.providers.aws.calls import Thing

_CHECKS = (("SystemStatus", "system"), ("InstanceStatus", "instance"), ("AttachedEbsStatus", "attached disk"))
_QUIET = frozenset({"ok", "not-applicable", ""})
_OVER = ("[Completed]", "[Canceled]")


def describe(status: Thing) -> str:
    """Return what is not in order with one instance; that its checks pass, where everything is."""
    words = [*_failed_checks(status), *_events(status)]
    return f"EC2: {'; '.join(words)}" if words else "EC2: its status checks pass"


def _failed_checks(status: Thing) -> Iterator[str]:
    for key, name in _CHECKS:
        summary: Thing = status.get(key, {})
        value = str(summary.get("Status", ""))
        if value in _QUIET:
            continue
        details: list[Thing] = [one for one in summary.get("Details", ()) if one.get("Status") != "passed"]
        failed = ", ".join(f"{one.get('Name')} {one.get('Status')}" for one in details)
        since = next((f" since {_moment(one['ImpairedSince'])}" for one in details if "ImpairedSince" in one), "")
        yield f"{name} status is {value}{since}{f' ({failed})' if failed else ''}"


def _events(status: Thing) -> Iterator[str]:
    for event in status.get("Events", ()):
        description = str(event.get("Description", ""))
        if description.startswith(_OVER):
            continue
        when = f" from {_moment(event['NotBefore'])}" if "NotBefore" in event else ""
        yield f"scheduled {event.get('Code', 'event')}{when}: {description}"


def _moment(value: datetime) -> str:
    return value.strftime("%Y-%m-%d %H:%M UTC")
