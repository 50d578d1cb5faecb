"""The provider over real sockets: create, observe, end and owned, with what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compute_bench import PROJECT, ZONE, Bench, bench, keyed, spec, wanted
from google_cases import INSTALLATION, TOKEN, candidate

from orch_fronts.google.compute.visit import kept
from orchestrator.errors import AccessError, CloudError, ConflictError, NotFoundError, QuotaError, UserError
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.core.journal import Undo
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.host_keys import KEY_PATIENCE
from orchestrator.providers.google.provider import open_provider
from orchestrator.providers.google.session import open_session
from orchestrator.providers.protocol import Stops
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Pool, Quota
from orchestrator.slices import FlexStart, SliceState, Spot

SHAPES = {
    "instance": wanted("v6e-8"),
    "group": wanted("v6e-16"),
    "two groups": wanted("tpu7x-16", slices=2, zone="us-central1-c"),
    "two instances": wanted("v6e-4", slices=2),
    "flex group": wanted("v6e-16", FlexStart(4.0)),
}
MACHINES = {"instance": 1, "group": 3}  # which of its requests makes the machines
GROUP = f"zones/{ZONE}/instanceGroupManagers/demo-1"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.parametrize("shape", SHAPES)
def test_slice_comes_up_in_rank_order_with_our_keys_and_goes_without_a_rest(shape: str, rig: Bench) -> None:
    of = spec(SHAPES[shape])
    provider = rig.create(of)
    assert provider.observe("demo-1").state is SliceState.CREATING
    rig.clock.advance(41)
    view = rig.provider().observe("demo-1")
    assert view.state is SliceState.READY, view
    hosts = of.candidate.hosts
    assert [host.internal_ip for host in view.hosts] == [f"10.0.0.{rank + 1}" for rank in range(hosts)]
    assert [host.host for host in view.hosts] == [f"198.18.0.{rank + 1}" for rank in range(hosts)]
    given = keyed(of, rig.state).host_public
    assert [host.host_key for host in view.hosts] == [" ".join(line.split()[:2]) for line in given]
    assert len({host.alias for host in view.hosts}) == hosts
    rig.gone()
    assert rig.leftovers() == []
    assert rig.provider().owned(INSTALLATION) == ()


def test_it_can_be_stopped() -> None:
    from orchestrator.providers.google.compute.provider import ComputeProvider

    assert issubclass(ComputeProvider, Stops)


def test_ranks_follow_the_workers_numbers_where_they_differ_from_the_names(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orch_fronts.google.compute import instances

    told = instances._told

    def backwards(visit: Any, look: Any, name: str) -> list[dict[str, str]]:
        found = [dict(item) for item in told(visit, look, name)]
        return [item | ({"value": str(3 - int(item["value"]))} if item["key"] == "worker-id" else {}) for item in found]

    monkeypatch.setattr(instances, "_told", backwards)
    view = rig.ready(spec())
    assert [host.internal_ip for host in view.hosts] == [f"10.0.0.{4 - rank}" for rank in range(4)]
    keys = keyed(spec(), rig.state).host_public
    assert [host.host_key for host in view.hosts] == [" ".join(keys[3 - rank].split()[:2]) for rank in range(4)]
    assert rig.provider().observe("demo-1").hosts == view.hosts, "by another command, too"


def test_hosts_without_our_key_hold_the_slice_back_for_a_while(rig: Bench) -> None:
    of = spec()
    keys = keyed(of, rig.state)
    provider = rig.provider()
    provider.create(of, keys)
    rig.clock.advance(41)
    record = provider._records.read("demo-1")
    assert record is not None
    others = (*record.host_public[:2], record.host_public[0], record.host_public[3])
    provider._records.write(record, host_public=others)
    view = provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.CREATING, "3 of 4 hosts have their SSH key")
    rig.clock.advance(KEY_PATIENCE + 1)
    assert provider.observe("demo-1").state is SliceState.READY, "SSH itself tells an impostor"


@pytest.mark.parametrize("journaled", [True, False])
@pytest.mark.parametrize("kind", ["instanceTemplates", "resourcePolicies", "instanceGroupManagers"])
def test_repeated_create_after_any_crash_makes_nothing_twice(
    kind: str, journaled: bool, rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the request of each kind: the next command does the rest, also without its journal."""
    send = ComputeApi.send

    def crash(self: ComputeApi, request: Any) -> Any:
        answer = send(self, request)
        if f"/{kind}?" in request.target:
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(ComputeApi, "send", crash)
        with pytest.raises(KeyboardInterrupt):
            rig.create(spec())
    if not journaled:
        rig.drop_journals()
    rig.create(spec())
    assert len(rig.cloud.live()) == 1
    for each in ("instanceTemplates", "resourcePolicies", "instanceGroupManagers"):
        assert len(rig.posted(each)) == 1, "what the first command made is found"
    sent = len(rig.server.requests)
    rig.create(spec())
    assert len(rig.server.requests) == sent, "an accepted create sends nothing"
    assert sorted(kept(rig.cloud, "groups")) == [GROUP]
    rig.clock.advance(41)
    assert rig.provider().observe("demo-1").state is SliceState.READY


@pytest.mark.parametrize(("shape", "number"), [("instance", 1), ("group", 1), ("group", 2), ("group", 3)])
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_BEFORE, FaultKind.TIMEOUT_AFTER, FaultKind.DUPLICATE])
def test_lost_answer_is_found_out_by_looking_and_nothing_leaks(
    shape: str, number: int, kind: FaultKind, cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks before the answer makes httplib2 send the request again; a 504 does not."""
    with bench(tmp_path, monkeypatch, Fault(call="create", kind=kind, nth=(number,)), cut=cut) as rig:
        of = spec(SHAPES[shape])
        acted = cut or number < MACHINES[shape]  # the simulated cloud carries out each change of a policy or a template
        if kind is FaultKind.TIMEOUT_BEFORE and not acted:
            with pytest.raises(CloudError, match="no answer") as caught:
                rig.create(of)
            assert "not known whether it acted" in caught.value.why
        rig.create(of)
        rig.clock.advance(41)
        assert rig.provider().observe("demo-1").state is SliceState.READY
        assert len(rig.cloud.live()) == 1
        rig.gone()
        assert rig.leftovers() == []


def test_create_that_arrives_late_is_waited_for_before_it_is_called_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(
        tmp_path, monkeypatch, Fault(call="create", kind=FaultKind.LATE, nth=(1,), seconds=60.0), cut=False
    ) as rig:
        with pytest.raises(CloudError):
            rig.create(spec(SHAPES["instance"]))
        provider = rig.provider()
        assert provider.observe("demo-1").state is SliceState.UNCLEAR
        provider.end("demo-1")
        assert provider.observe("demo-1").state is SliceState.UNCLEAR, "it may be on its way"
        rig.clock.advance(SETTLE_SECONDS + 1)
        assert provider.observe("demo-1").state is not SliceState.ABSENT
        rig.gone()
        assert rig.leftovers() == []


@pytest.mark.parametrize("shape", ["instance", "group"])
def test_no_capacity_fails_with_googles_words(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=0),)) as rig:
        provider = rig.create(spec(SHAPES[shape]))
        rig.clock.advance(10)
        view = provider.observe("demo-1")
        assert view.state is SliceState.FAILED
        assert view.reason.startswith("no machines: The zone '"), view.reason
        rig.gone()
        assert rig.leftovers() == []


@pytest.mark.parametrize("shape", ["instance", "group"])
def test_no_quota_is_told_apart(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(
        tmp_path, monkeypatch, quotas=(Quota(region="us-east5", accelerator="v6e", amount=1, unit="chips"),)
    ) as rig:
        provider = rig.create(spec(SHAPES[shape]))
        rig.clock.advance(10)
        view = provider.observe("demo-1")
        assert view.state is SliceState.FAILED
        assert view.reason.startswith("no quota: "), view.reason


@pytest.mark.parametrize("shape", ["instance", "group"])
def test_flex_start_waits_for_machines_and_says_until_when(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = wanted("v6e-8" if shape == "instance" else "v6e-16", FlexStart(4.0), valid_hours="1")
    with bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=0),)) as rig:
        provider = rig.create(spec(of))
        began = rig.clock.now()
        rig.clock.advance(600)
        view = provider.observe("demo-1")
        assert (view.state, view.until) == (SliceState.CREATING, began + 3600)
        assert "waits for machines" in view.reason
        rig.cloud.state.capacity[f"{ZONE}/v6e/*"] = 8
        rig.clock.advance(30)
        provider.observe("demo-1")
        rig.clock.advance(45)
        assert provider.observe("demo-1").state is SliceState.READY
        rig.clock.advance(4 * 3600)
        assert provider.observe("demo-1").state is not SliceState.READY, "its time is over"
        rig.gone()
        assert rig.leftovers() == []


@pytest.mark.parametrize("shape", ["v6e-8", "v6e-16"])
def test_preempted_spot_slice_is_preempted_and_ends_completely(shape: str, rig: Bench) -> None:
    rig.ready(spec(wanted(shape, Spot())))
    rig.cloud.preempt("demo-1")
    view = rig.provider().observe("demo-1")
    assert view.state is SliceState.PREEMPTED, view
    rig.clock.advance(120)
    later = rig.provider().observe("demo-1")
    assert later.state in (SliceState.PREEMPTED, SliceState.ABSENT), later
    rig.gone()
    assert rig.leftovers() == []


def test_dead_host_of_a_group_fails_the_slice(rig: Bench) -> None:
    rig.ready(spec())
    rig.cloud.do("demo-1", Deed.FAIL_HOST, 2)
    rig.clock.advance(100)
    view = rig.provider().observe("demo-1")
    assert (view.state, view.reason) == (SliceState.FAILED, "1 of 4 instances of demo-1: TERMINATED")


def test_group_that_never_gets_all_its_hosts_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="create", kind=FaultKind.HALF_MADE, nth=(3,), rank=1)) as rig:
        provider = rig.create(spec())
        rig.clock.advance(300)
        assert provider.observe("demo-1").state is SliceState.CREATING


def test_machines_somebody_else_deleted_are_gone_and_the_rest_is_to_be_ended(rig: Bench) -> None:
    rig.ready(spec())
    rig.api.delete(f"projects/{PROJECT}/{GROUP}")
    rig.clock.advance(30)
    view = rig.provider().observe("demo-1")
    assert (view.state, view.reason) == (
        SliceState.FAILED,
        "its machines are deleted; these are not: instanceTemplates/demo-1, resourcePolicies/demo-1",
    )
    rig.provider().end("demo-1")
    assert rig.provider().observe("demo-1").state is SliceState.ABSENT


@pytest.mark.parametrize("shape", ["instance", "group"])
def test_name_of_somebody_elses_machines_is_refused_and_never_ended(shape: str, rig: Bench) -> None:
    theirs = spec(SHAPES[shape], token="somebody-elses-1")
    rig.create(theirs)
    for path in (rig.state / "google-compute").iterdir():
        path.unlink()
    with pytest.raises(ConflictError):
        rig.create(spec(SHAPES[shape]))
    before = rig.leftovers()
    rig.provider().end("demo-1")
    assert rig.leftovers() == before
    assert rig.provider().observe("demo-1").state is SliceState.ABSENT, "of ours there is nothing"


@pytest.mark.parametrize(("shape", "number"), [("group", 1), ("group", 2), ("group", 3), ("flex group", 4)])
def test_refusal_of_any_request_takes_away_what_came_before_it(
    shape: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first refusal of a create says that nothing was made: so nothing may be left."""
    with bench(tmp_path, monkeypatch, Fault(call="create", kind=FaultKind.DENIED, nth=(number,))) as rig:
        with pytest.raises(AccessError, match="not allowed") as caught:
            rig.create(spec(SHAPES[shape]))
        assert "roles/compute.instanceAdmin.v1" in caught.value.next_step
        assert rig.leftovers() == []
        assert rig.provider().observe("demo-1").state is SliceState.ABSENT


def test_refusal_of_the_second_part_says_that_something_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="create", kind=FaultKind.DENIED, nth=(2,))) as rig:
        with pytest.raises(CloudError, match="only a part"):
            rig.create(spec(SHAPES["two instances"]))
        assert rig.provider().observe("demo-1").state is SliceState.CREATING
        rig.gone()
        assert rig.leftovers() == []


def test_what_cannot_be_taken_away_at_once_is_said_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = (Fault(call="create", kind=FaultKind.DENIED, nth=(3,)), Fault(call="end", kind=FaultKind.DENIED, nth=(1,)))
    with bench(tmp_path, monkeypatch, *faults) as rig:
        with pytest.raises(CloudError, match="only a part"):
            rig.create(spec())
        assert rig.provider().observe("demo-1").state is not SliceState.ABSENT
        rig.clock.advance(SETTLE_SECONDS)
        rig.gone()
        assert rig.leftovers() == []


def test_what_takes_long_to_be_taken_away_is_said_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = ComputeApi.settled

    def slow(self: ComputeApi, path: str, operation: Mapping[str, Any]) -> None:
        if operation["operationType"] == "delete":
            raise CloudError(f"{path} is not there yet")
        wait(self, path, operation)

    monkeypatch.setattr(ComputeApi, "settled", slow)
    with bench(tmp_path, monkeypatch, Fault(call="create", kind=FaultKind.DENIED, nth=(3,))) as rig:
        with pytest.raises(CloudError, match="only a part"):
            rig.create(spec())
        assert rig.provider().observe("demo-1").state is not SliceState.ABSENT


def test_policy_of_another_owner_is_not_taken_back(rig: Bench) -> None:
    rig.ready(spec())
    record = rig.provider()._records.read("demo-1")
    assert record is not None
    rig.api.delete(f"projects/{PROJECT}/{GROUP}")
    rig.clock.advance(30)
    (template, policy), driver = record.rest, rig.provider()._compute
    for path in (template, policy):
        driver.undo(replace(record, token="other-1"), Undo(operation="delete", params={"path": path}))
    assert len(rig.leftovers()) == 2
    for path in (template, policy):
        driver.undo(record, Undo(operation="delete", params={"path": path}))
    assert rig.leftovers() == []


def test_policy_that_is_still_being_created_is_waited_for(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    send, get = ComputeApi.send, ComputeApi.get

    def crash(self: ComputeApi, request: Any) -> Any:
        send(self, request)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ComputeApi, "send", crash)
        with pytest.raises(KeyboardInterrupt):
            rig.create(spec())
    with monkeypatch.context() as patch:
        patch.setattr(ComputeApi, "get", lambda self, path: (get(self, path) or {}) | {"status": "CREATING"})
        with pytest.raises(CloudError, match="is not ready"):
            rig.create(spec())
    assert rig.posted("instanceTemplates") == []
    rig.ready(spec())


def test_accepted_create_that_is_not_shown_yet_is_not_absent_when_it_is_ended(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create(spec(SHAPES["instance"]))
    with monkeypatch.context() as patch:
        patch.setattr(ComputeApi, "get", lambda *_: None)
        assert rig.provider().observe("demo-1").reason == "accepted, not shown yet"
        rig.provider().end("demo-1")
        assert rig.provider().observe("demo-1").state is SliceState.UNCLEAR
    rig.gone()
    assert rig.leftovers() == []


def test_templates_and_policies_of_an_ended_slice_are_due_and_finished(rig: Bench) -> None:
    rig.ready(spec(SHAPES["two groups"]))
    rig.provider().end("demo-1")
    rig.clock.advance(30)
    view = rig.provider().observe("demo-1")
    assert (view.state, view.due, len(rig.leftovers())) == (SliceState.ENDING, True, 4)
    assert rig.provider().finish("demo-1").state is SliceState.ABSENT
    assert rig.leftovers() == []


def test_provider_of_both_apis_finishes_what_an_ended_group_leaves(rig: Bench) -> None:
    rig.ready(spec())
    provider = open_provider(rig.state)
    provider.end("demo-1")
    rig.clock.advance(30)
    assert provider.observe("demo-1").due
    assert len(rig.leftovers()) == 2
    assert provider.finish("demo-1").state is SliceState.ABSENT
    assert rig.leftovers() == []


def test_group_that_is_deleted_while_it_is_observed_is_ending(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ready(spec())
    rig.provider().end("demo-1")

    def deleted(*_: object) -> None:
        raise Refused(Answer(kind=Kind.NOT_FOUND, words="it was not found"))

    monkeypatch.setattr(ComputeApi, "members", deleted)
    assert rig.provider().observe("demo-1").state is SliceState.ENDING


def test_end_that_had_no_effect_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="end", kind=FaultKind.IGNORED, nth=(1,))) as rig:
        rig.ready(spec())
        rig.provider().end("demo-1")
        assert rig.provider().observe("demo-1").state is SliceState.READY
        rig.gone()
        assert rig.leftovers() == []


def test_an_end_that_was_cut_off_shows_the_machines_that_still_run(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then their deletion is requested again soon, and not after the long pause of a deletion that is under way."""
    rig.create(spec(SHAPES["two instances"]))
    rig.clock.advance(41)
    delete, sent = ComputeApi.delete, list[str]()

    def crash(self: ComputeApi, path: str) -> Any:
        if sent:
            raise KeyboardInterrupt
        sent.append(path)
        return delete(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(ComputeApi, "delete", crash)
        with pytest.raises(KeyboardInterrupt):
            rig.provider().end("demo-1")
    assert rig.provider().observe("demo-1").state is SliceState.READY
    rig.gone()
    assert rig.leftovers() == []


def test_end_of_what_is_absent_succeeds(rig: Bench) -> None:
    rig.provider().end("demo-1")
    assert rig.provider().observe("demo-1").state is SliceState.ABSENT


def test_unanswered_look_is_unclear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="get", kind=FaultKind.DENIED, rate=1.0, begin=30.0)) as rig:
        rig.create(spec())
        rig.clock.advance(41)
        view = rig.provider().observe("demo-1")
        assert (view.state, view.reason[:12]) == (SliceState.UNCLEAR, "not allowed:")


def test_owned_lists_ours_by_installation_over_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, page=1) as rig:
        rig.create(spec(name="one-1", token="token-1", cluster="one"))
        rig.create(spec(SHAPES["instance"], name="two-1", token="Token/2", cluster="two"))
        rig.clock.advance(41)
        found = {one.name: one for one in rig.provider().owned(INSTALLATION)}
        assert sorted(found) == ["one-1", "two-1"]
        assert (found["two-1"].intent, found["two-1"].cluster) == ("Token/2", "two")
        assert {one.state for one in found.values()} == {SliceState.READY}
        assert {one.where for one in found.values()} == {f"gcp/us-east5/{ZONE}"}
        assert all(abs(one.created - rig.clock.now()) < 100 for one in found.values())
        assert rig.provider().owned("another") == ()


def test_left_template_is_owned_and_ended_without_a_record(rig: Bench) -> None:
    rig.ready(spec())
    rig.api.delete(f"projects/{PROJECT}/{GROUP}")
    rig.clock.advance(30)
    for path in (rig.state / "google-compute").iterdir():
        path.unlink()
    (left,) = rig.provider().owned(INSTALLATION)
    assert (left.name, left.state) == ("demo-1", SliceState.FAILED)
    rig.provider().end("demo-1")
    assert rig.leftovers() == []


def test_slice_of_another_computer_is_seen_but_not_used_and_can_be_ended(rig: Bench) -> None:
    rig.ready(spec())
    for path in (rig.state / "google-compute").iterdir():
        path.unlink()
    view = rig.provider().observe("demo-1")
    assert view.state is SliceState.UNCLEAR
    assert "from another computer" in view.reason
    rig.gone()
    assert rig.leftovers() == []
    ended = [path.partition("?")[0] for method, path, _ in rig.server.requests if method == "DELETE"]
    assert not [path for path in ended if "/instances/" in path], "a member goes with its group"


def test_listing_that_misses_a_zone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, monkeypatch, Fault(call="list", kind=FaultKind.PARTIAL, rate=1.0)) as rig:
        rig.create(spec())
        with pytest.raises(CloudError, match="could not list all instances"):
            rig.provider().owned(INSTALLATION)
        (rig.state / "google-compute" / "demo-1.json").unlink()
        assert rig.provider().observe("demo-1").state is SliceState.UNCLEAR, "an empty listing proves nothing"


def test_reads_are_repeated_and_changes_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = (
        Fault(call="get", kind=FaultKind.UNAVAILABLE, nth=(1, 2)),
        Fault(call="create", kind=FaultKind.UNAVAILABLE, nth=(4,)),
    )
    with bench(tmp_path, monkeypatch, *faults) as rig:
        provider = rig.create(spec())
        assert provider.observe("demo-1").state is SliceState.CREATING
        with pytest.raises(CloudError):
            rig.create(spec(SHAPES["instance"], name="demo-2", token="other-1"))
        assert len(rig.posted("instances")) == 1


def test_single_instance_is_stopped_and_started_and_a_group_is_not(rig: Bench) -> None:
    rig.ready(spec(SHAPES["instance"]))
    provider = rig.provider()
    provider.stop("demo-1")
    rig.clock.advance(25)
    assert provider.observe("demo-1").state is SliceState.STOPPED
    provider.start("demo-1")
    rig.clock.advance(35)
    assert provider.observe("demo-1").state is SliceState.READY
    rig.ready(spec(name="demo-2", token="other-1"))
    with pytest.raises(UserError, match="cannot be stopped"):
        provider.stop("demo-2")
    with pytest.raises(NotFoundError):
        provider.start("demo-3")


def test_stop_keeps_what_an_observation_recorded(rig: Bench) -> None:
    rig.create(spec(SHAPES["instance"]))
    rig.clock.advance(41)
    seen = rig.clock.now()
    assert rig.provider().observe("demo-1").state is SliceState.READY
    rig.clock.advance(1)
    rig.provider().stop("demo-1")
    record = rig.provider()._records.read("demo-1")
    assert record is not None
    assert (record.seen, record.order, record.checked) == (seen, (0,), False)


def test_start_is_repeated_while_the_host_has_not_reported_its_key(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from orch_fronts.google.compute import instances

    rig.ready(spec(SHAPES["instance"]))
    rig.provider().stop("demo-1")
    rig.clock.advance(25)
    rig.provider().start("demo-1")
    rig.clock.advance(35)
    monkeypatch.setattr(instances, "_told", lambda *_: [])
    assert rig.provider().observe("demo-1").state is SliceState.CREATING
    rig.provider().start("demo-1")
    rig.provider().stop("demo-1")
    rig.clock.advance(25)
    assert rig.provider().observe("demo-1").state is SliceState.STOPPED


def test_quota_of_an_operation_is_a_quota_error() -> None:
    from orchestrator.providers.google.compute.api import answer_of
    from orchestrator.providers.google.retries import explain

    error = explain("create", "demo-1", answer_of({"code": "QUOTA_EXCEEDED", "message": "Quota 'TPUS' exceeded"}))
    assert isinstance(error, QuotaError)


def test_records_hold_no_private_key(rig: Bench) -> None:
    of = spec()
    rig.create(of)
    text = (rig.state / "google-compute" / "demo-1.json").read_text()
    secret = keyed(of, rig.state).host_private[0].splitlines()[2]
    assert TOKEN in text
    assert "PRIVATE" not in text
    assert secret not in text


def test_work_that_is_needed_is_waited_for_and_its_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, monkeypatch, pools=(Pool(zone=ZONE, accelerator="v6e", amount=1),)) as rig:
        api = ComputeApi(open_session(), wait_seconds=0.0)
        operations: list[str] = []
        for number in (1, 2):
            rig.create(spec(SHAPES["instance"], name=f"demo-{number}", token=f"token-{number}"))
            record = rig.provider()._records.read(f"demo-{number}")
            assert record is not None
            operations += record.operations
        path = f"projects/{PROJECT}/zones/{ZONE}/instances/demo-1"
        with pytest.raises(CloudError, match="not there yet"):
            api.settled(path, api.operation(operations[0]) or {})
        rig.clock.advance(41)
        api.settled(path, api.operation(operations[0]) or {})
        with pytest.raises(Refused, match="enough resources"):
            api.settled(path, api.operation(operations[1]) or {})


def test_slice_that_is_being_ended_is_not_made_again_under_its_name(rig: Bench) -> None:
    rig.ready(spec())
    rig.provider().end("demo-1")
    with pytest.raises(ConflictError, match="being ended"):
        rig.create(spec())
    with pytest.raises(ConflictError, match="being ended"):
        rig.create(spec(token="other-1"))
    rig.gone()
    rig.create(spec(token="other-1"))
    assert len(rig.cloud.live()) == 1


def test_machines_without_tpus_are_described_from_their_labels_alone(rig: Bench) -> None:
    of = replace(candidate("e2-standard-4", Spot(), zone=ZONE), hosts=2)
    rig.ready(spec(of))
    provider = rig.provider()
    (found,) = provider.owned("")
    seen = provider.describe_owned(found).candidate
    assert (seen.accelerator, seen.hosts, seen.chips_per_host, seen.market) == ("e2-standard-4", 2, 0, Spot())
    assert (seen.region, seen.zone, seen.price_per_hour) == ("us-east5", ZONE, None), "no such price is known there"


CONSOLE = """\
[    0.000000] Linux version 6.8.0-1021-gcp errors=remount-ro
Nov 26 06:11:58 demo google_metadata_script_runner[812]: startup-script: E: Could not get lock /var/lib/apt/lists/lock
Nov 26 06:12:00 demo systemd[1]: Reached target multi-user.target
"""


def test_the_serial_console_explains_a_host_that_does_not_answer(rig: Bench) -> None:
    rig.ready(spec(SHAPES["instance"]))
    kept(rig.cloud, "serial")[f"{ZONE}/demo-1"] = "x" * 20_000 + "\n" + CONSOLE
    assert rig.provider().diagnose_hosts("demo-1", TOKEN, [0]) == {
        0: "serial console: google_metadata_script_runner[812]: startup-script: "
        "E: Could not get lock /var/lib/apt/lists/lock"
    }
    (asked,) = [path for _, path, _ in rig.server.requests if "/serialPort?" in path]
    assert "start=-16384" in asked, "the end of it"
    rig.gone()


def test_the_serial_console_explains_a_host_that_never_reports_its_key(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch_fronts.google.compute.instances._told", lambda *_: [])
    provider = rig.create(spec(SHAPES["instance"]))
    kept(rig.cloud, "serial")[f"{ZONE}/demo-1"] = CONSOLE
    rig.clock.advance(41)
    assert provider.observe("demo-1").reason == "0 of 1 hosts have their SSH key"
    rig.clock.advance(61)
    view = provider.observe("demo-1")
    assert view.state is SliceState.CREATING
    assert view.reason.endswith("E: Could not get lock /var/lib/apt/lists/lock"), view
    rig.gone()
