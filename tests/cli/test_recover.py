"""Machines without a record, on simulated clouds: a sweep leaves them, and `orch recover` finds and ends them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch
from support.slice_names import slice_name

import orchestrator.cli
from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2.visit import left
from orch_fronts.google.cloud import SimulatedGoogle
from orch_fronts.google.compute.visit import kept
from orch_fronts.google.grants import APIS, Grants
from orchestrator.computer import read_member
from orchestrator.engine.state.names import member_label
from orchestrator.providers.google.check_role import role_permissions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = """
[durations]
create = 0.2
end = 0.2
detect = 0.2
contact = 0
"""
P5 = "name: p5\nresources: {accelerators: 'H100:8', infra: aws/us-east-1}\nrun: 'true'\n"
TPU = "name: tpu\nresources: {%s}\nrun: 'true'\n"
NODE = "accelerators: v5e-8, infra: gcp/us-west4/us-west4-a"
INSTANCE = "accelerators: v6e-8, infra: gcp/us-east5/us-east5-a, accelerator_args: {api: compute}"
SCHEMA = Path(orchestrator.cli.__file__).parent / "data" / "recover.schema.json"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[SimulatedAws]:
    folder = tmp_path / "aws"
    folder.mkdir()
    (folder / "scenario.toml").write_text(SCENARIO)
    with SimulatedAws(folder) as aws:
        yield aws


@pytest.fixture
def google(tmp_path: Path) -> Iterator[SimulatedGoogle]:
    folder = tmp_path / "google"
    folder.mkdir()
    (folder / "scenario.toml").write_text(SCENARIO)
    with SimulatedGoogle(folder) as google:
        yield google


@pytest.fixture
def orch(tmp_path: Path, aws: SimulatedAws) -> Orch:
    """Return a command line with a p5 up on the simulated AWS."""
    orch = Orch(tmp_path, dict(aws.env))
    orch.ok("config", "set", "aws.instance_profile", "orch-host")
    (tmp_path / "p5.yaml").write_text(P5)
    orch.ok("launch", "p5.yaml", "--yes")
    return orch


def living(cloud: SimulatedAws | SimulatedGoogle) -> list[str]:
    with cloud.cloud.open() as inside:
        return [look.name for look in inside.live()]


def rules(google: SimulatedGoogle) -> list[str]:
    """Return the firewall rules."""
    with google.cloud.open() as cloud:
        return list(kept(cloud, "firewalls"))


def listed(orch: Orch, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(orch(*words, "-o", "json").stdout)["places"]
    return [one for place in found for one in place["slices"]]


@pytest.mark.promise("P5")
def test_after_the_loss_of_the_state_folder_a_sweep_asks_the_cloud_and_is_not_clean(
    orch: Orch, aws: SimulatedAws
) -> None:
    name = slice_name("p5", home=orch.state.parent)
    shutil.rmtree(orch.state)
    for words in (("reap", "--dry-run"), ("reap", "--yes")):
        done = orch(*words)
        assert done.returncode == 1, done.stderr
        assert "asked: local, aws (account 123456789012, every region)\n" in done.stderr and name in done.stdout
        assert "next: orch recover" in done.stderr and "no orphans" not in done.stderr
    assert living(aws) == [name]


@pytest.mark.promise("P5")
def test_the_advice_for_a_damaged_database_leads_to_the_machines(orch: Orch, aws: SimulatedAws) -> None:
    name = slice_name("p5", home=orch.state.parent)
    (orch.state / "orch.db").write_text("no database" * 1000)
    said = orch("status").stderr
    assert f"keys lie beside it, in {orch.state}/keys: of {name}" in said and "orch recover" in said
    (advice,) = [line for line in said.splitlines() if "mv " in line]
    subprocess.run(["bash", "-c", advice.partition("mv ")[1] + advice.partition("mv ")[2]], check=True)
    done = orch("reap", "--yes")
    assert done.returncode == 1 and name in done.stdout, done.stderr
    assert living(aws) == [name]


@pytest.mark.promise("P5")
def test_a_slice_that_an_older_copy_of_the_store_does_not_know_stays(orch: Orch, aws: SimulatedAws) -> None:
    orch.ok("down", "p5")
    for file in orch.state.glob("orch.db*"):
        shutil.copy(file, orch.folder)
    orch.ok("launch", "p5.yaml", "--yes", "-c", "later")
    later = slice_name("later", home=orch.state.parent)
    for file in orch.state.glob("orch.db*"):
        file.unlink()
    for file in orch.folder.glob("orch.db*"):
        shutil.move(file, orch.state)
    assert "orch store restored" in orch("reap", "--yes").stderr
    orch.ok("store", "restored", "--yes")
    done = orch("reap", "--yes")
    assert done.returncode == 1 and "unknown" in done.stdout, done.stderr
    assert living(aws) == [later]


def test_recover_lists_lost_machines_and_ends_the_one_that_is_named(orch: Orch, aws: SimulatedAws) -> None:
    (mine,) = listed(orch, "recover", "--all")
    assert (mine["ours"], mine["record"], mine["price_per_hour"]) == (True, "open", pytest.approx(55.04, abs=10.0))
    assert listed(orch, "recover") == [], "it has an open record here"
    assert "1 slice not shown: orch recover --all" in orch("recover").stderr
    refused = orch("recover", "p5", "--end", "--yes")
    assert refused.returncode == 6 and "next: orch down p5" in refused.stderr
    shutil.rmtree(orch.state)
    done = orch("recover", "-o", "json")
    shown = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(shown)
    (lost,) = [one for place in shown["places"] for one in place["slices"]]
    assert lost | {"ours": False, "record": "none"} == mine | {"ours": False, "record": "none"}
    assert (lost["ours"], lost["record"], lost["machine"], lost["count"]) == (False, "none", "p5.48xlarge", 1)
    assert {place["provider"]: place["asked"] for place in shown["places"]} == {
        "local": True,
        "aws": True,
        "gcp": False,
    }
    text = orch("recover")
    assert text.returncode == 0 and lost["intent"] in text.stdout, text.stdout + text.stderr
    assert (
        "orch recover p5 --end" in text.stderr
        and "not asked: gcp: " in text.stderr
        and "next: orch recover p5 --take-over" in text.stderr
    )
    assert orch("recover", "p5", "--end").returncode == 2, "there is no terminal to ask on"
    assert orch("recover", "p6", "--end", "--yes").returncode == 3
    name = mine["name"]
    assert living(aws) == [name] == [slice_name("p5", home=orch.state.parent)]
    ended = orch("recover", "p5", "--end", "--yes")
    assert ended.returncode == 0 and f"'{name}' is deleted" in ended.stderr, ended.stderr
    with aws.cloud.open() as cloud:
        assert [one for one in left(cloud) if not one.endswith("/default")] == [], "groups and addresses are gone too"
    assert living(aws) == [] and listed(orch, "recover") == []
    assert "is deleted" in orch.ok("events", "p5")


@pytest.mark.promise("P5")
def test_a_cloud_that_does_not_answer_is_named_and_fails_the_command(orch: Orch, aws: SimulatedAws) -> None:
    shutil.rmtree(orch.state)
    away = Orch(orch.folder, dict(aws.env) | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    for verb in ("reap", "recover"):
        done = away(verb)
        assert done.returncode != 0 and "could not be asked: aws: " in done.stderr
        assert "no orphans\n" not in done.stderr


@pytest.mark.parametrize("resources", [NODE, INSTANCE])
def test_on_google_both_apis_and_the_firewall_are_searched(
    tmp_path: Path, google: SimulatedGoogle, resources: str
) -> None:
    """A v6e is made on Compute Engine, whose API only records would show to be in use."""
    orch = Orch(tmp_path, dict(google.env))
    (tmp_path / "tpu.yaml").write_text(TPU % resources)
    orch.ok("launch", "tpu.yaml", "--yes")
    assert rules(google) != []
    (mine,) = listed(orch, "recover", "--all")
    assert (mine["project"], mine["member"]) == ("default", member_label(read_member()))
    shutil.rmtree(orch.state)
    assert orch("reap", "--yes").returncode == 1
    (lost,) = listed(orch, "recover")
    assert (lost["intent"], lost["record"], lost["state"]) == (mine["intent"], "none", "ready")
    ended = orch("recover", "tpu", "--end", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert (living(google), rules(google), listed(orch, "recover")) == ([], [], [])


@pytest.mark.promise("P5")
def test_of_two_slices_of_one_name_the_one_on_record_stays(orch: Orch, aws: SimulatedAws) -> None:
    shutil.rmtree(orch.state)
    orch.ok("config", "set", "aws.instance_profile", "orch-host")
    (orch.folder / "p5.yaml").write_text(P5.replace("us-east-1", "us-east-2"))
    orch.ok("launch", "p5.yaml", "--yes")
    both = {one["record"]: one for one in listed(orch, "recover", "--all")}
    assert both["open"]["name"] == both["none"]["name"] == slice_name("p5", home=orch.state.parent)
    ended = orch("recover", "p5", "--end", "--yes")
    assert ended.returncode == 0, ended.stderr
    (kept,) = listed(orch, "recover", "--all")
    assert (kept["intent"], kept["record"], kept["state"]) == (both["open"]["intent"], "open", "ready")
    assert "ok" in orch.ok("exec", "p5", "--no-prefix", "--", "echo ok")


@pytest.mark.parametrize(
    ("grants", "status"),
    [
        (Grants(), 0),
        (Grants(apis=APIS - {"compute.googleapis.com"}), 0),
        (Grants(apis=APIS - {"tpu.googleapis.com"}), 0),
        (Grants(permissions=frozenset(role_permissions()) - {"compute.instances.list"}), 4),
        (Grants(permissions=frozenset(role_permissions()) - {"compute.firewalls.list"}), 4),
        (Grants(permissions=frozenset(role_permissions()) - {"tpu.nodes.list"}), 4),
    ],
)
def test_an_api_that_a_project_does_not_use_is_an_answer_and_a_refusal_is_none(
    tmp_path: Path, grants: Grants, status: int
) -> None:
    with SimulatedGoogle(tmp_path / "google", grants=grants) as google:
        for verb in ("reap", "recover"):
            done = Orch(tmp_path, dict(google.env))(verb)
            assert done.returncode == status, done.stderr
            assert ("could not be asked: gcp project local-project: " in done.stderr) == (status != 0)


def test_the_project_of_the_settings_is_included(tmp_path: Path, google: SimulatedGoogle) -> None:
    orch = Orch(tmp_path, dict(google.env))
    orch.ok("config", "set", "gcp.project", "another-project")
    for verb in ("reap", "recover"):
        done = orch(verb)
        assert done.returncode != 0 and "asked: local, gcp project local-project (every zone)\n" in done.stderr
        assert "could not be asked: gcp project another-project: " in done.stderr
