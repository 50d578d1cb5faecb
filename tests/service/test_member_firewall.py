"""The firewall of rented machines admits a member's address with their key, and drops both with the token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until
from support.service_site import Reply, Served, serve

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2 import visit as aws
from orchestrator.remote.keys import make_host_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
TASK = "name: two\nresources: {accelerators: 'H100:1', infra: aws/us-east-1}\nrun: sleep 600\n"


@dataclass(frozen=True, kw_only=True)
class Rented:
    """A service that has rented a machine for ada, at work."""

    site: Served
    cloud: SimulatedAws
    ada: Orch

    def sources(self) -> set[str]:
        """Return what the firewall admits."""
        with self.cloud.cloud.open() as cloud:
            rules = [rule for group in aws.kept(cloud, "groups").values() for rule in group["ingress"]]
        return {rule["CidrIp"] for rule in rules if rule.get("FromPort") == 22 and "CidrIp" in rule}

    def ask(self, secret: str, address: str, key: str = "", **more: Any) -> Reply:
        body = json.dumps({"public_key": key or make_host_key()[1], "address": address} | more).encode()
        return self.site.ask(
            "/v1/clusters/two/access", method="POST", body=body, content_type="application/json",
            authorization=f"Bearer {secret}",
        )  # fmt: skip

    def token(self, name: str) -> str:
        return str(self.site.orch.ok("token", "create", name, "--member", "ada")).strip()


@pytest.fixture
def rented(tmp_path: Path) -> Iterator[Rented]:
    for name in ("cloud", "service", "ada"):
        (tmp_path / name).mkdir()
    (tmp_path / "cloud" / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "ada" / "two.yaml").write_text(TASK)
    with SimulatedAws(tmp_path / "cloud") as cloud:
        service = Orch(tmp_path / "service", dict(cloud.env))
        service.ok("config", "set", "aws.instance_profile", "orch-host")
        with serve(service, page_only=False) as site:
            url, secret = f"http://127.0.0.1:{site.port}", service.ok("token", "create", "laptop", "--member", "ada")
            Orch(tmp_path / "ada").ok("login", url, "--token-stdin", stdin=secret)
            ada = Orch(tmp_path / "ada", {"ORCH_SERVER": url})
            ada.ok("launch", "two.yaml", "--detach", "--yes")
            until("the job runs", lambda: '"running"' in ada.ok("queue", "-o", "json"))
            yield Rented(site=site, cloud=cloud, ada=ada)
            ada.ok("down", "two")


def test_a_member_is_admitted_at_their_address_while_a_job_runs(rented: Rented) -> None:
    done = rented.ada("ssh", "two", "--", "echo there")
    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
    own = rented.sources()
    elsewhere, secret = "203.0.113.7/32", rented.token("elsewhere")
    for wrong in (
        "0.0.0.0/0",
        "203.0.113.0/24",
        "0.0.0.0/32",
        "224.0.0.1/32",
        "::1/128",
        "x",
        "203.0.113.7/32,0.0.0.0/0",
    ):
        assert rented.ask(secret, wrong).status == 400, wrong
    short = rented.ask(secret, "203.0.113.6/32", seconds=10)
    order = f"/v1/orders/{short.document['order']}"
    until("it was admitted", lambda: rented.site.ask(order).document["status"] == 0)
    until("and is withdrawn when its time is over", lambda: rented.sources() == own)
    assert rented.ask(secret, elsewhere).status == 200
    until("the firewall admits it", lambda: rented.sources() == own | {elsewhere})
    for last in (8, 9):
        assert rented.ask(secret, f"203.0.113.{last}/32").status == 200
    full = rented.ask(secret, "203.0.113.10/32")
    assert (full.status, "addresses already" in full.text) == (409, True), full.text
    rented.site.orch.ok("token", "revoke", "elsewhere")
    until("they are withdrawn", lambda: rented.sources() == own)
    assert rented.ada("ssh", "two", "--", "true").returncode == 0
