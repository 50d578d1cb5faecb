"""Find the machine that a name means, in any usual spelling: `resolve("tpu-v5e-16")`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.catalog import chips
from orchestrator.catalog.choosing import NotRentedError, Requirements, choose_machine
from orchestrator.catalog.machines import CpuMachine, LocalHosts, Machine
from orchestrator.catalog.rented import load_tables
from orchestrator.catalog.tpu import find_slice
from orchestrator.errors import UserError

LARGEST_LOCAL = 1024  # loopback hosts; more is a typing error


def resolve(name: str) -> Machine:
    """Return the machine that a name means: one that is rented out, NAME:COUNT, `cpu`, or `local:...`.

    Raises:
        UserError: The name is unknown; the message has the nearest names or sizes.
    """
    requested = name.strip()
    if requested.lower() == "cpu":
        return _cpu(requested)
    if requested.lower().startswith("local:"):
        return resolve_local(requested[len("local:") :])
    return resolve_rented(requested)


def resolve_rented(name: str) -> Machine:
    """Resolve a name of something that a cloud rents out; NAME:COUNT is the cheapest of all clouds.

    Raises:
        UserError: The name is unknown; the message has the nearest names or sizes.
    """
    if name.strip() and (chosen := choose_machine(name, Requirements())) is not None:
        return chosen.machine
    refused: UserError | None = None
    for table in load_tables():
        try:
            found = table.find_rented(name)
        except UserError as error:  # no such count or size there; another cloud may have it
            refused = refused or error
        else:
            if found is not None:
                return found
    raise refused or _unknown(name.strip())


def resolve_instance(name: str) -> Machine:
    """Resolve an instance type, which may be newer than the tables.

    Raises:
        UserError: The name is that of no type.
    """
    try:
        return resolve_rented(name)
    except UserError:
        for table in load_tables():
            if (found := table.find_unlisted(name)) is not None:
                return found
        raise


def resolve_own(name: str) -> Machine:
    """Resolve the devices of one of the user's own machines.

    NAME:COUNT with any count, a machine that is rented out, or `cpu`.
    """
    if name.strip().lower() == "cpu":
        return _cpu(name.strip())
    return chips.find_devices(name) or resolve_rented(name)


def resolve_local(shape: str) -> LocalHosts:
    """Resolve the part after `local:`: a number of hosts, or a machine whose shape they take."""
    text = shape.strip()
    if text.isascii() and text.isdigit():
        return _plain_hosts(text)
    if text.lower() == "cpu":
        return _plain_hosts("1")
    real = resolve_rented(text)
    return LocalHosts(
        name=f"local:{real.name}",
        hosts=real.hosts,
        chips_per_host=real.chips_per_host,
        cores_per_chip=real.cores_per_chip,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if text == real.name else f"local:{text}",
        stands_for=real,
    )


def find_own_topology(machine: Machine) -> str:
    """Return the topology to request where the name alone would get another one; "" for the usual one."""
    usual = resolve_rented(machine.name).topology if machine.topology else ""
    return machine.topology if usual != machine.topology else ""


def resolve_reported(name: str) -> Machine:
    """Resolve what a provider calls one of its machines.

    Raises:
        UserError: No table has it.
    """
    for table in load_tables():
        if (found := table.find_reported(name)) is not None:
            return found
    return resolve_rented(name)


def is_rented(name: str) -> bool:
    """Return whether a cloud rents out a machine of this name.

    Raises:
        UserError: The name is of a table, and there is no such machine.
    """
    if name.strip() and choose_machine(name, Requirements()) is not None:
        return True
    return any(table.find_rented(name) is not None for table in load_tables())


def list_common_names() -> tuple[str, ...]:
    """Return the names of all tables for suggestions."""
    return tuple(name for table in load_tables() for name in table.list_common_names())


def is_gpu(name: str) -> bool:
    """Return whether a machine's accelerators are GPUs, by the name that a candidate has.

    `local:NAME` is as NAME, so that a program sees on this computer what it sees on the real machine.
    """
    real = name.lower().removeprefix("local:")
    return find_slice(real) is None and not real.startswith(("trn", "trainium", "cpu"))


def nearest_names(name: str) -> tuple[str, ...]:
    """Return up to three known names that resemble `name`, best first."""
    from difflib import get_close_matches

    tables = {known: table for table in load_tables() for known in table.list_common_names()}
    spelled = {known.lower(): known for known in (*tables, "cpu", "local:4")}
    word = name.strip().lower()
    close = get_close_matches(word.removeprefix("tpu-"), spelled, n=6, cutoff=0.6)
    close = _nearest_sizes(word, spelled) or close
    found = [spelled[item] for item in close] or [
        spelled[item] for item in spelled if item.partition(":")[0] == word.partition(":")[0]
    ]
    unique: list[str] = []
    for item in found:
        canonical = tables[item].spell(item) if item in tables else item
        if canonical not in unique:
            unique.append(canonical)
    return tuple(unique[:3])


def _nearest_sizes(word: str, known: Iterable[str]) -> list[str]:
    """Return the names that differ from `word` in their last number alone, the nearest numbers first."""
    stem, size = _split_size(word)
    same = [one for one in known if size and _split_size(one)[0] == stem and _split_size(one)[1]]
    return sorted(same, key=lambda one: (abs(_split_size(one)[1] - size), _split_size(one)[1]))


def _split_size(name: str) -> tuple[str, float]:
    found = re.fullmatch(r"(.*?[-:.])([0-9]+(?:[.][0-9]+)?)([a-z]*)", name)
    return (f"{found[1]}#{found[3]}", float(found[2])) if found else (name, 0.0)


def _plain_hosts(count: str) -> LocalHosts:
    hosts = int(count[:7])
    if not 1 <= hosts <= LARGEST_LOCAL:
        raise UserError(f"`local:{count}` is not possible", f"1 to {LARGEST_LOCAL} local hosts", "use local:4")
    return LocalHosts(
        name=f"local:{hosts}",
        hosts=hosts,
        chips_per_host=0,
        cores_per_chip=0,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if count == str(hosts) else f"local:{count}",
    )


def _cpu(requested: str) -> CpuMachine:
    return CpuMachine(
        name="cpu",
        hosts=1,
        chips_per_host=0,
        cores_per_chip=0,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if requested == "cpu" else requested,
    )


def _unknown(name: str) -> UserError:
    if name.lower().partition(":")[0] == "local":
        return UserError(f"`{name}` is a place, not a machine", "", f"write infra: {name}, without accelerators")
    for table in load_tables():
        if (incomplete := table.explain_incomplete(name)) is not None:
            return incomplete
    near = nearest_names(name)
    if chips.is_rented_elsewhere(name):
        nearest = f"nearest: {', '.join(near)}" if near else "orch accelerators lists those that it rents"
        return NotRentedError(f"orch rents no machine with `{name}`", "other clouds have it", nearest)
    return UserError(
        f"orch's tables have no accelerator or machine type `{name}`",
        f"nearest: {', '.join(near)}"
        if near
        else "TPU slices are named like v5litepod-16, GPUs like H100:8, or by instance type",
        f"use {near[0]}" if near else "orch accelerators lists them",
    )
