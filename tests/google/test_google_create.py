"""Creates: asked twice, with lost answers, refused, and under names that are taken."""

from __future__ import annotations

import json

import pytest
from google_bench import CREATE_NODE, NODE, SPOT, Bench
from google_cases import filled, keys, spec
from google_fake import Answer, Fault

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    CredentialsError,
    OrchError,
    QuotaError,
    UserError,
)
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.google import client, session
from orchestrator.providers.google.record import Records
from orchestrator.slices import SliceSpec, SliceState


def test_create_asked_twice_makes_one_slice(bench: Bench) -> None:
    for of in (spec(), spec(SPOT, "demo-2", "other-token-2")):
        bench.created(of)
        bench.created(of)
    assert (len(bench.fake.nodes), len(bench.fake.queued)) == (1, 1)
    assert bench.fake.count(CREATE_NODE) == 1, "the second one looked first"


def test_own_keys_for_every_host_are_needed(bench: Bench) -> None:
    with pytest.raises(ValueError, match="need a key pair each"):
        bench.provider().create(spec(), keys(3))
    assert bench.fake.calls == []


def test_node_of_another_request_under_this_name_is_a_conflict_and_stays(bench: Bench) -> None:
    bench.created(spec())
    before = json.dumps(bench.fake.nodes)
    with pytest.raises(ConflictError) as caught:
        bench.created(spec(token="another-token-1"))
    assert caught.value.next_step
    assert json.dumps(bench.fake.nodes) == before
    assert bench.provider().observe("demo-1").state is SliceState.CREATING


def test_somebody_elses_node_is_a_conflict_and_is_never_ended(bench: Bench) -> None:
    bench.fake.nodes[NODE] = {"name": NODE, "state": "READY", "labels": {"team": "theirs"}}
    with pytest.raises(ConflictError):
        bench.created(spec())
    provider = bench.provider()
    provider.end("demo-1")
    assert bench.fake.count("DELETE") == 0
    assert NODE in bench.fake.nodes
    assert provider.observe("demo-1").state is SliceState.ABSENT, "ours is not there"


@pytest.mark.promise("P2")
@pytest.mark.parametrize("of", [spec(), spec(SPOT)], ids=["node", "queued"])
@pytest.mark.parametrize("answer", [None, Answer(503, "try later"), Answer(500, "oops")], ids=["silence", "503", "500"])
def test_create_whose_answer_is_lost_is_settled_by_a_look(of: SliceSpec, answer: Answer | None, bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", answer, acts=True, drops=answer is None)]
    bench.created(of)
    assert bench.fake.count("POST") == 1, "never sent again"
    assert bench.provider().observe("demo-1").state is SliceState.CREATING


def test_create_that_never_arrived_may_be_asked_again(bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", drops=True)]
    with pytest.raises(CloudError, match="not known"):
        bench.created(spec())
    assert bench.provider().observe("demo-1").state is SliceState.UNCLEAR, "it may still be on its way"
    bench.created(spec())
    assert len(bench.fake.nodes) == 1


@pytest.mark.promise("P2")
def test_a_refusal_of_the_second_try_says_nothing_about_the_first(bench: Bench) -> None:
    """The first request may arrive when the second one was refused: its node must be found and ended then."""
    bench.fake.faults = [Fault("POST", drops=True)]
    with pytest.raises(CloudError):
        bench.created(spec())
    bench.fake.faults = [Fault("POST", Answer(429, "There is no more capacity in the zone"))]
    with pytest.raises(CapacityError):
        bench.created(spec())
    provider = bench.provider()
    assert provider.observe("demo-1").state is SliceState.UNCLEAR
    provider.end("demo-1")
    assert provider.observe("demo-1").state is SliceState.UNCLEAR
    client.open_api(session.open_session()).create(filled(spec(), bench.keyed(spec())))
    provider.end("demo-1")
    assert bench.fake.nodes == {}


@pytest.mark.parametrize("of", [spec(), spec(SPOT)], ids=["node", "queued"])
def test_hosts_are_pinned_to_the_keys_that_google_holds(of: SliceSpec, bench: Bench) -> None:
    """Another computer may have sent the request, with other keys."""
    lost = Fault("POST", drops=True, acts=True)
    bench.fake.faults = [lost, *[Fault("GET", Answer(403, "not allowed"))] * 2]
    with pytest.raises(CloudError, match="not known"):  # an AccessError would mean that nothing was made
        bench.created(of)
    bench.fake.faults = []
    bench.provider().create(of, keys(4))
    assert bench.fake.count("POST") == 1
    record = Records(bench.state / "google").read("demo-1")
    assert record is not None
    held, sent = ([line.split()[:2] for line in every] for every in (record.host_public, bench.keys.host_public[:4]))
    assert held == sent


def test_create_on_its_way_is_absent_only_when_it_can_no_longer_arrive(bench: Bench) -> None:
    bench.fake.faults = [Fault("POST", drops=True)]
    with pytest.raises(CloudError):
        bench.created(spec())
    provider = bench.provider()
    provider.end("demo-1")
    assert provider.observe("demo-1").state is SliceState.UNCLEAR
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_capacity_that_is_missing_only_in_the_operation_is_a_failure_with_its_words(bench: Bench) -> None:
    provider = bench.created(spec())
    (path,) = bench.fake.operations
    words = 'There is no more capacity in the zone "us-west4-a"'
    bench.fake.operations[path] = {"name": path, "done": True, "error": {"code": 8, "message": words}}
    bench.fake.nodes.clear()
    view = provider.observe("demo-1")
    assert view.state is SliceState.FAILED
    assert words in view.reason
    provider.end("demo-1")
    bench.clock += SETTLE_SECONDS + 1
    assert provider.observe("demo-1").state is SliceState.ABSENT


@pytest.mark.parametrize(
    ("answer", "expected", "next_step"),
    [
        (Answer(429, "There is no more capacity in the zone"), CapacityError, "another zone"),
        (Answer(429, "Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded. Limit: 0"), QuotaError, "Quotas"),
        (Answer(403, "Permission 'tpu.nodes.create' denied"), AccessError, "orch check gcp"),
        (
            Answer(403, "Cloud TPU API has not been used in project 1 before or it is disabled."),
            AccessError,
            "gcloud services enable tpu.googleapis.com",
        ),
        (Answer(401, "credentials"), CredentialsError, "ORCH_GCP_TOKEN"),
        (Answer(400, "Invalid value for node.network_config"), UserError, "orch accelerators"),
        (Answer(429, "Quota exceeded for 'Requests' and limit 'Requests per minute'"), CloudError, "again"),
        (Answer(404, "Network net-9 was not found"), UserError, "the network"),
        (Answer(403, "Location us-west4-z is not found or access is unauthorized"), CapacityError, "another zone"),
        (Answer(404, "accelerator type v6e-8 not found in this zone"), CapacityError, "another zone"),
    ],
)
def test_refused_create_says_what_to_do_and_leaves_nothing(
    answer: Answer, expected: type[OrchError], next_step: str, bench: Bench
) -> None:
    bench.fake.faults = [Fault("POST", answer)]
    with pytest.raises(expected) as caught:
        bench.created(spec())
    assert type(caught.value) is expected
    assert next_step in caught.value.next_step
    assert answer.words.split(".")[0] in caught.value.why
    assert bench.fake.count("POST") == 1
    assert bench.provider().observe("demo-1").state is SliceState.ABSENT
    bench.created(spec())
    assert len(bench.fake.nodes) == 1, "the same slice may be asked for later"
