"""What hosts install: every requirement of a stack is locked, with digests, for every Python and machine of hosts."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orchestrator.catalog.installs import python_stack
from orchestrator.catalog.tables import read_rows

STACKS = [row.text("name") for row in read_rows("installs", "stack")]


@pytest.mark.parametrize("name", STACKS)
def test_every_direct_requirement_is_locked_in_a_version_that_it_allows(name: str) -> None:
    stack = python_stack(name)
    locked = [Requirement(line.partition(" --hash")[0]) for line in stack.locked]
    for direct in map(Requirement, (*stack.framework, *stack.libraries)):
        same = [one for one in locked if canonicalize_name(one.name) == canonicalize_name(direct.name)]
        assert same, direct
        for one in same:
            assert direct.specifier.contains(str(one.specifier).removeprefix("=="))


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_a_package_has_one_version_on_a_host(name: str, python: str) -> None:
    for machine in ("x86_64", "aarch64"):
        place = {"python_version": python, "platform_machine": machine}
        locked = [Requirement(line.partition(" --hash")[0]) for line in python_stack(name).locked]
        names = [one.name for one in locked if one.marker is None or one.marker.evaluate(place)]
        assert len(names) == len(set(names))


def test_every_package_has_digests() -> None:
    for row in read_rows("installs", "package"):
        assert row.texts("stacks") and set(row.texts("stacks")) <= set(STACKS)
        assert row.texts("sha256") and all(len(bytes.fromhex(digest)) == 32 for digest in row.texts("sha256"))
