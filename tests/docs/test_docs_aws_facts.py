"""Facts of docs/aws.md against the catalogue, the planner and the table of AWS's errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.catalog.ec2 import find_instance, load_instances
from orchestrator.catalog.prices import price_per_hour
from orchestrator.engine.preparation.preflight import unsupported_hosts_error
from orchestrator.plan.desired import Budgets
from orchestrator.providers.aws import (
    access,
    blocks,
    choices,
    disks,
    images,
    interfaces,
    market,
    reservations,
    userdata,
)
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.faults import by_code, explain
from orchestrator.providers.aws.planner import SCRATCH
from orchestrator.providers.aws.profile_repair import SSM_POLICY
from orchestrator.providers.aws.quotas import ADDRESSES, advice, quota_of
from orchestrator.providers.aws.session import READ_TRIES
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.core.faults import Answer, Kind
from orchestrator.slices import Candidate, HostFacts, OnDemand, Spot
from orchestrator.task.driver_sections import load_settings_section
from orchestrator.task.parse import parse_task

PAGE = (Path(__file__).parent.parent.parent / "docs" / "aws.md").read_text()
FLAT = " ".join(PAGE.split())


def table(heading: str) -> list[list[str]]:
    """The cells of each row of the table whose first column is called so."""
    lines = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert lines, f"no table of '{heading}'"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def family(name: str) -> str:
    return name.partition(".")[0]


def candidate(name: str = "p5.48xlarge", hosts: int = 2, **details: str) -> Candidate:
    return Candidate(
        provider="aws",
        accelerator=name,
        hosts=hosts,
        chips_per_host=8,
        market=Spot(),
        region="us-east-1",
        zone="us-east-1a",
        details=tuple(details.items()),
    )


MACHINES = table("asked for")


@pytest.mark.parametrize("row", MACHINES, ids=lambda row: row[1].strip("`"))
def test_the_table_of_machines_is_that_of_the_catalogue(row: list[str]) -> None:
    requested, (name,), chips, memory, vcpus, efa, price = row[0], quoted(row[1]), *row[2:]
    machine = load_instances()[name]
    assert chips == f"{machine.chips_per_host} {machine.chip}"
    assert memory == f"{machine.hbm_gib_per_chip:g}"
    assert (int(vcpus), int(efa)) == (machine.vcpus, machine.efa_max)
    assert len(interfaces.efa_places(machine)) == machine.efa_max
    assert machine.on_demand or machine.capacity_block, "where it says none, there is spot, or a capacity block"
    listed = price_per_hour(machine, OnDemand(), "us-east-1")
    assert price == (f"{listed.low:.2f}" if listed else "none") and (price == "none") is not machine.on_demand
    assert listed is None or f"List prices of {listed.as_of} in US dollars an hour" in PAGE
    for word in quoted(requested):
        meant = find_instance(word)
        assert meant is not None and meant.name == name


PLAIN = table("CPU type")


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row[0].strip("`"))
def test_the_table_of_machines_without_chips_is_that_of_the_catalogue(row: list[str]) -> None:
    machine = load_instances()[quoted(row[0])[0]]
    price = price_per_hour(machine, OnDemand(), "us-east-1")
    assert price is not None
    assert row[1:] == [f"{machine.vcpus}", f"{machine.ram_gib:g}", f"{machine.efa_max}", f"{price.low:.2f}"]


def test_every_machine_of_the_catalogue_is_in_the_table_and_no_price_is_elsewhere() -> None:
    listed = [quoted(row[1])[0] for row in MACHINES], [quoted(row[0])[0] for row in PLAIN]
    machines = load_instances().values()
    known = [one.name for one in machines if one.chips], [one.name for one in machines if not one.chips]
    assert listed == known, "docs/aws.md has one row each, in order"
    assert re.findall(r"\$\d|\d+(?:\.\d+)? (?:US )?dollars", PAGE) == []


def test_every_family_has_its_quotas() -> None:
    listed = {name: row for row in table("machines") for name in row[0].split(", ")}
    assert set(listed) == {family(name) for name in load_instances()}, "the quotas in docs/aws.md have each family"
    for name in load_instances():
        _, on_demand, spot = listed[family(name)]
        assert quoted(on_demand) == [quota_of(name, OnDemand()).code]
        assert quoted(spot) == [quota_of(name, Spot()).code]
    needed = {name: count * load_instances()[name].vcpus for name, count in (("p5.48xlarge", 2), ("trn1.32xlarge", 4))}
    assert f"Two `p5.48xlarge` need {needed['p5.48xlarge']} vCPUs" in FLAT
    assert f"four `trn1.32xlarge` {needed['trn1.32xlarge']}." in FLAT
    assert f"(`{ADDRESSES.code}`, usually {access.USUAL_ADDRESSES} in a region)" in FLAT


ERRORS = table("error")


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row[1])
def test_an_error_is_what_the_table_says(row: list[str]) -> None:
    error, words, advised = row
    codes = quoted(words)
    assert codes
    answers = [Answer(kind=by_code(code), code=code, words=words.partition(" with ")[2].strip('"')) for code in codes]
    answers += [Answer(kind=Kind.NO_ANSWER, code="", words="")] if "no answer" in words else []
    for answer in answers:
        met = explain("create", "p5-1", answer)
        assert error == f"`{met.code}` (exit {int(met.exit_status)})", answer
        more = advice(answer.code, "p5.48xlarge", 2, OnDemand(), "us-east-1")
        assert ("in the message" in advised or "likewise" in advised) is ("request-service-quota-increase" in more)


def test_every_error_that_a_create_can_meet_is_in_the_table() -> None:
    met = {explain("create", "p5-1", Answer(kind=kind, code="", words="")).code for kind in Kind}
    assert {word for row in ERRORS for word in quoted(row[0])} == met


SETTINGS = {word: row[1] for row in table("setting below `config.aws`") for word in quoted(row[0])}
WAYS = {word.removeprefix("access: "): words for word, words in SETTINGS.items() if word.startswith("access: ")}


def test_every_setting_of_the_dialect_is_documented() -> None:
    known = load_settings_section("aws").json_schema()["properties"]
    assert {word.partition(":")[0] for word in SETTINGS} == set(known)
    assert set(WAYS) == set(known["access"]["enum"]) == set(Way)


def test_the_way_to_the_machines_is_the_one_that_is_called_the_default() -> None:
    usual = {
        "the default for several machines with EFA": candidate(),
        "the default for one machine with EFA": candidate(hosts=1, network="best"),
        "the default with one interface": candidate(hosts=1),
    }
    for words, requested in usual.items():
        assert words in WAYS[choices.read(requested).access.way], words
    assert sum("the default" in words for words in WAYS.values()) == len(usual)
    for network, efa in (("standard", 0), ("", 32)):
        assert len(choices.read(candidate(network=network)).efa) == efa
    assert "**all 32 EFA interfaces of each machine**" in PAGE and "`standard` leaves them out" in PAGE


def test_the_table_of_images_is_what_the_planner_chooses() -> None:
    for machines, trains, words in table("machine"):
        names = sorted({family(name) for name in load_instances() if images.is_neuron(name)})
        listed = names if machines == "all of them" else machines.split(", ")
        frameworks = ["jax"] if trains == "`framework: jax`" else ["torch", ""]
        for name in listed:
            for framework in frameworks:
                image = images.choose(f"{name}.48xlarge", framework, "")
                said = " ".join(re.findall(r"SDK [\d.]+|torch-neuronx [\d.]+|JAX NeuronX", words))
                assert said and said in image.why, (name, framework, image.why)


def test_the_bundled_trainer_drives_as_many_hosts_as_it_is_said_to() -> None:
    assert "takes JAX on Trn1, on one host or several (`orch train Trainium:16 --num-nodes 4 batch=128`)" in FLAT
    assert "With `engine=torch` it drives one host of Trn1 and no more" in FLAT
    for engine, hosts, is_refused in (("auto", 4, False), ("torch", 1, False), ("torch", 2, True)):
        machines = f"resources: {{accelerators: 'Trainium:16'}}\nnum_nodes: {hosts}\n"
        text = f"train: {{args: {{engine: {engine}}}}}\n{machines}"
        refused = unsupported_hosts_error(parse_task(text, file="t.yaml", env={}).only, HostFacts(backend="neuron"))
        assert (refused is not None) is is_refused


def test_numbers_of_the_text_are_those_of_the_code() -> None:
    gib = (disks.DISK_GIB, disks.NEURON_DISK_GIB, disks.PLAIN_DISK_GIB)
    assert "an encrypted root disk of {} GiB (Trainium: {}, without accelerators: {})".format(*gib) in FLAT
    assert f"up to {market.MOST_IN_BLOCK} machines for 1 to 14 whole days, or up to 182 days in weeks" in FLAT
    for days in (1, 14, 182):
        assert blocks.plan_search("p5.48xlarge", market.MOST_IN_BLOCK, days * 24).hours == days * 24
    early, before = reservations.TAKEN_BEFORE_END / 60, Budgets().save_before / 60
    assert (early, before) == (30, 10)
    assert "takes the machines from 30 minutes before the end on. Ten minutes before that, orch makes" in FLAT
    assert f"as deleted only {SETTLE_SECONDS:.0f} seconds after" in FLAT
    assert f"the keys of {userdata.MOST_HOSTS} machines" in FLAT
    assert READ_TRIES == 4 and "Reads are tried up to four times" in FLAT
    assert f"Local NVMe disks are at `{SCRATCH}`" in FLAT
    assert f"Amazon's policy `{SSM_POLICY}`" in FLAT
