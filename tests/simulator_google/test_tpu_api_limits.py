"""What a new project is refused, in Google's own words (orch_fronts/answers), and what a scenario may ask for."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from support.zones import EVERY_TYPE
from tpu_support import ZONE, Tpu, make_node, refusal, tpu_api

from orch_fronts.answers import Entry, answers_by_id, load_answers, say
from orch_fronts.google.grants import Grants
from orch_fronts.google.limits import listed
from orch_fronts.google.tables import regional_quotas, tpu_quotas
from orchestrator.simulator.scenario import Fault, FaultKind, Scenario, Zone

V6E = {"accelerator_type": "v6e-8", "runtime_version": "v2-alpha-tpuv6e"}
EXTERNAL = {"network_config": {"enable_external_ips": True}}
REFUSALS = [one for one in load_answers() if one.form == "tpu" and one.http != 401]  # a client answers 401 itself
LATE = [one for one in load_answers() if one.form == "operation"]


def answer(tpu: Tpu, **fields: object) -> tuple[int, str]:
    error = refusal(lambda: tpu.create("refused", **fields))
    return int(error.code or 0), str(error.message)


def said(name: str, **values: object) -> str:
    return say(name, **values).text


def test_type_is_sold_in_some_zones() -> None:
    with tpu_api(pools=()) as tpu:
        http, words = answer(tpu, **V6E)
        assert http == 400
        assert words.endswith(said("tpu-type-not-in-zonal-configurations", type="v6e-8", zone=ZONE))
        assert "v6e-8" not in {one.type_ for one in tpu.client.list_accelerator_types(parent=tpu_parent())}
    with tpu_api(pools=EVERY_TYPE) as tpu:
        tpu.ready(**V6E)


def test_zone_that_is_not_there_is_denied_as_google_does() -> None:
    with tpu_api() as tpu:
        error = refusal(lambda: tpu.create(zone="us-west4-c"))
        assert error.message.endswith("Permission denied on 'locations/us-west4-c' (or it may not exist).")
        assert error.reason == "LOCATION_POLICY_VIOLATED"


def test_zone_of_tpu_research_cloud_is_closed_to_a_new_project() -> None:
    node = {"accelerator_type": "v4-8", "runtime_version": "tpu-ubuntu2204-base"}
    zones = (Zone("us-central2-b", "us-central2"),)
    with tpu_api(zones=zones, pools=(), new_account=True) as tpu:
        error = refusal(lambda: tpu.create(zone="us-central2-b", **node))
        assert error.message.endswith(said("tpu-location-policy-violated", project="local-project"))
    with tpu_api(zones=zones, pools=()) as tpu:
        tpu.create(zone="us-central2-b", **node)


@pytest.mark.parametrize(
    ("spot", "size", "fits", "quota"),
    [
        (False, 4, True, ""),
        (False, 8, False, "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"),
        (True, 8, False, "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"),
        (False, 16, True, ""),
        (True, 32, False, "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"),
    ],
)
def test_quota_is_by_type_and_size(spot: bool, size: int, fits: bool, quota: str) -> None:
    with tpu_api(pools=(), new_account=True) as tpu:
        node = {"accelerator_type": f"v5litepod-{size}", "scheduling_config": {"spot": spot}}
        if fits:
            tpu.ready(**node)
            return
        value = next(one.value for one in tpu_quotas() if one.id == quota)
        http, words = answer(tpu, **node)
        assert http == 429
        assert words.endswith(said("tpu-serving-quota-v5e", quota=quota, limit=value, zone=ZONE))
        queued = refusal(lambda: tpu.queue(node=make_node(**node), **({"spot": {}} if spot else {})))
        assert queued.message.endswith(said("tpu-serving-quota-v5e", quota=quota, limit=value, zone=ZONE))


def test_small_and_large_slices_count_apart_and_by_zone() -> None:
    with tpu_api(pools=(), new_account=True) as tpu:
        tpu.ready("small", accelerator_type="v5litepod-4")
        assert answer(tpu, accelerator_type="v5litepod-1")[0] == 429
        tpu.ready("large", accelerator_type="v5litepod-16")
        tpu.create("far", zone="us-central1-a", accelerator_type="v5litepod-4")


def test_suspended_request_holds_the_quota_until_it_is_deleted() -> None:
    with tpu_api(pools=(), new_account=True) as tpu:
        tpu.active(node=make_node(accelerator_type="v5litepod-4"), spot={})
        tpu.cloud.preempt("demo-1")
        tpu.clock.advance(60)
        assert tpu.queue_state() == "SUSPENDED"
        spot = {"accelerator_type": "v5litepod-4", "scheduling_config": {"spot": True}}
        assert answer(tpu, **spot)[0] == 429
        tpu.unqueue(force=True)
        tpu.clock.advance(60)
        tpu.create("again", **spot)


def test_hosts_take_addresses_and_instances() -> None:
    with tpu_api(pools=(), new_account=True) as tpu:
        tpu.ready("four", accelerator_type="v5litepod-16", **EXTERNAL)
        operation = tpu.create("fifth", accelerator_type="v5litepod-4", **EXTERNAL)
        tpu.clock.advance(60)
        limit = f"{regional_quotas()['IN_USE_ADDRESSES'].value}.0"
        with pytest.raises(exceptions.GoogleAPICallError) as caught:
            operation.result(timeout=10)
        assert said("gce-quota-addresses", limit=limit, region="us-west4") in str(caught.value)
        tpu.create("inside", accelerator_type="v5litepod-4")


def test_creates_have_a_rate() -> None:
    with tpu_api(creates_per_minute=2) as tpu:
        tpu.create("one")
        tpu.create("two")
        http, words = answer(tpu)
        assert http == 429 and words.endswith(said("tpu-create-node-per-minute"))
        tpu.clock.advance(61)
        tpu.create("three")


def test_service_usage_lists_what_creates_are_refused_for() -> None:
    limits = {one.metric: one.value for one in listed(Scenario(new_account=True))}
    assert limits["tpu-v5s-litepod-serving"] == 4 and limits["regional_in_use_addresses"] == 4
    assert listed(Scenario()) == () and Grants().limits == ()


@pytest.mark.parametrize("entry", REFUSALS, ids=lambda entry: entry.id)
def test_scenario_may_ask_for_any_refusal(entry: Entry) -> None:
    with tpu_api(Fault(call="create", kind=FaultKind.ANSWER, nth=(1,), answer=entry.id)) as tpu:
        http, words = answer(tpu)
        assert http == entry.http
        assert words.endswith(entry.text)
        tpu.create("next")


@pytest.mark.parametrize("entry", LATE, ids=lambda entry: entry.id)
def test_scenario_may_ask_for_any_end_of_an_operation(entry: Entry) -> None:
    with tpu_api(Fault(call="create", kind=FaultKind.ANSWER, nth=(1,), answer=entry.id)) as tpu:
        operation = tpu.create()
        tpu.clock.advance(60)
        with pytest.raises(exceptions.GoogleAPICallError) as caught:
            operation.result(timeout=10)
        assert entry.text in str(caught.value)


def test_slots_leave_all_other_words_as_the_vendor_wrote_them() -> None:
    for entry in load_answers():
        assert all(_plain(place) in f"{entry.text} {entry.details}" for one in entry.slots.values() for place in one)
        same = {name: _value(places[0]) for name, places in entry.slots.items()}
        if len({*same}) == len(same) and "choosing" not in same:
            assert say(entry.id, **same).text == entry.text
    assert len(answers_by_id()) == len(load_answers())


def tpu_parent() -> str:
    return f"projects/local-project/locations/{ZONE}"


def _plain(place: str) -> str:
    return place.replace("{", "").replace("}", "")


def _value(place: str) -> str:
    return place.partition("{")[2].partition("}")[0] or place
