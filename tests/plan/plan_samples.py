"""Requests, facts and plans that the tests of orchestrator.plan share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.plan.desired import Budgets, JobSpec, MountSpec, Run, SetupSpec, TreeSpec
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Observed
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand, Request, SliceSpec, Spot
from orchestrator.values import Secret, Text, Unknown

CLEAR = "s3cr3t-value-never-shown"


@dataclass(frozen=True)
class SampleRequests:
    """Requests of a made-up provider. bare: without a command line."""

    bare: bool = False

    def create_request(self, spec: SliceSpec) -> Request:
        body = {"token": spec.token, "labels": dict(spec.labels), "host_keys": [Text.of(Unknown("a key"))] * 3}
        return self._request("POST", spec.name, body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return self._request("DELETE", name, {})

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return self._request("STOP", name, {})

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return self._request("START", name, {})

    def _request(self, method: str, name: str, body: dict[str, object]) -> Request:
        command = () if self.bare else tuple(Text.of(word) for word in ("cloud", method.lower(), "--name", name))
        return Request(service="sample", method=method, target=f"/slices/{name}", body=body, command=command)


FACTS = Facts({"sample": SampleRequests(), "bare": SampleRequests(bare=True)})


def candidate(hosts: int = 4, **changes: object) -> Candidate:
    base = Candidate(
        provider="sample",
        accelerator="v5litepod-16",
        hosts=hosts,
        chips_per_host=4,
        market=Spot(),
        region="us-west4",
        zone="us-west4-a",
        price_per_hour=12.34,
        price_note="price list, 2026-11-01",
        disk_gib=100,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def sample_run(hosts: int = 4, **changes: object) -> Run:
    base = Run(
        cluster="demo",
        slice_stem="demo",
        uid=Text.of(Unknown("id made at launch")),
        run_id=Text.of(Unknown("run id made at launch")),
        installation=Text.of("inst"),
        candidates=(candidate(hosts), candidate(hosts, zone="us-west4-b", market=OnDemand(), price_per_hour=None)),
        trees=(
            TreeSpec(
                label="workdir",
                source="/home/me/project",
                destination="~/orch/workdir",
                digest="d1",
                files=321,
                total_bytes=5_000_000,
            ),
        ),
        mounts=(
            MountSpec(
                label="/data",
                source="s3://b/data",
                destination="/data",
                digest="d2",
                script=Text.of("#!/bin/bash\ncp s3://b/data /data\n"),
            ),
        ),
        setup=SetupSpec("abcdef0123", Text.of("#!/bin/bash\npip install -r requirements.txt\n")),
        job=JobSpec(id=1, script=Text.of("#!/bin/bash\npython train.py --lr '1e-3' \"$ORCH_RANK\"\n")),
        env=(("LR", Text.of("1e-3")), ("HF_TOKEN", Text.of(Secret("HF_TOKEN", CLEAR)))),
        checkpoint_uri=Text.of("s3://b/runs"),
        budgets=Budgets(preemptions=3, failures=1),
        teardown=TeardownPolicy.DOWN,
        labels=(("team", "nlp"),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


def plan(hosts: int = 4, **changes: object) -> Plan:
    return make_plan(sample_run(hosts, **changes), Observed(now=1_000_000.0), FACTS)
