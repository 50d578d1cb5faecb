"""What the preview promises in each of its forms."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from plan_samples import CLEAR, FACTS, candidate, plan, sample_run

from orchestrator.errors import UserError
from orchestrator.hosts import EndedBy, HostAddress, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan import preview, preview_advice, preview_format, preview_json, preview_sh, preview_text
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    CreateSlice,
    EndAttempt,
    EndSlice,
    ForgetSlice,
    NextAttempt,
    StopJob,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Budgets, Cancel, Down, Limits, Run, Start, Stop, Strategy, TimerSpec
from orchestrator.plan.dry_run import Plan, assume_success, make_plan
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.observed import Contact, EndedAttempt, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.plan.ranks import format_hosts, format_ranks
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.google.labels import to_google
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Owned, Request, Reservation, SliceState
from orchestrator.values import Text, Unknown

SCHEMA = json.loads((Path(preview_json.__file__).parent / "data" / "plan.schema.json").read_text())


TIMER = TimerSpec("t1", Text.of("#!/bin/bash\ninstall the timer\n"), idle_minutes=30, stops=True)
RICH = Budgets(
    preemptions=5, failures=2, storage=3, restart_on=(3, 4), fail_on=(42,), strategy=Strategy.FAILOVER,
    capacity_wait=86_400.0, capacity_wait_first=1800.0, hang_deadline=1800.0,
)  # fmt: skip
SHORT_ONES = (
    EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="lost", generation=None, at=990.0),
    EndedAttempt(attempt=2, cause=EndCause.HUNG, why="it did not move", generation=None, at=999.0),
)


def existing(state: SliceState = SliceState.READY, **changes: object) -> Observed:
    intent = Intent(generation=1, name="demo-1", candidate=candidate(2), state=IntentState.ACCEPTED, since=900.0)
    hosts = tuple(HostView(rank=rank, internal_ip=Text.of(f"10.0.0.{rank}"), contact=Contact.OK) for rank in range(2))
    base = Observed(now=1000.0, intents=(intent,), slice_state=state, hosts=hosts if state is SliceState.READY else ())
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def plans() -> dict[str, Plan]:
    running = tuple(replace(host, job=JobPhase.RUNNING) for host in existing().hosts)
    hung = tuple(replace(host, step=7, beat_age=3600.0) for host in running)
    owned = Intent(
        generation=1, name="demo-1", candidate=candidate(2, market=Owned()), state=IntentState.ACCEPTED, since=900.0
    )
    odd: tuple[Action, ...] = (
        NextAttempt(attempt=2, cause=EndCause.PREEMPTED, why="it was lost", generation=1),
        NextAttempt(attempt=3, cause=EndCause.PROGRAM, why="it failed", generation=None, exit_code=3, rank=1, step=120),
        EndAttempt(attempt=3, cause=EndCause.HUNG, why="it does not move", step=120, rank=1),
        CollectStacks("1-a3", "it does not move", (0, 1)),
        ArmTimer("d", Text.of("#!/bin/bash\ntrue\n"), (0, 1)),
        *(EndAttempt(attempt=4, cause=cause, why="why") for cause in EndCause),
        StopJob(job="1-a1", ended_by=EndedBy.RESTART, why="why", grace=2.5, ranks=(0, 1, 5)),
        ForgetSlice("demo-1", EndCause.REQUESTED, ""),
        EndSlice(
            name="demo-1",
            cause=EndCause.BROKEN,
            why="x",
            request=Request(service="s", method="DELETE", target="t", body={"a": [1, None, True, 2.5, {"b": "c"}]}),
        ),
    )
    return {
        "launch": plan(),
        "one host": plan(1),
        "large": plan(200),
        "keep": plan(teardown=TeardownPolicy.KEEP),
        "no job": plan(job=None, setup=None),
        "no command": plan(candidates=(candidate(provider="bare"),)),
        "reservation": plan(candidates=(candidate(market=Reservation("r")), candidate(market=CapacityBlock("cr-1")))),
        "exec": make_plan(sample_run(2, create=False, ranks=(1,)), existing(), FACTS),
        "resume": make_plan(sample_run(2, resume_from=Text.of("latest")), existing(), FACTS),
        "nothing there": make_plan(sample_run(create=False), Observed(now=0.0), FACTS),
        "down": make_plan(Down("demo"), existing(), FACTS),
        "down of owned": make_plan(Down("demo"), existing(intents=(owned,), hosts=running, running_job="1-a1"), FACTS),
        "down of nothing": make_plan(Down("demo"), Observed(now=0.0), FACTS),
        "stop": make_plan(Stop("demo"), existing(), FACTS),
        "start": make_plan(Start("demo"), existing(SliceState.STOPPED), FACTS),
        "cancel": make_plan(Cancel(cluster="demo", folder="1-a1"), existing(hosts=running), FACTS),
        "over": make_plan(
            sample_run(teardown=TeardownPolicy.KEEP),
            existing(outcome=Outcome(status=3, code="program-failed", what="it failed")),
            FACTS,
        ),
        "with limits": plan(limits=Limits(12.0, 1500.0), timer=TIMER, budgets=RICH),
        "after two short attempts": make_plan(sample_run(2), existing(ended=SHORT_ONES, attempt=3), FACTS),
        "hung": make_plan(
            sample_run(2, budgets=RICH), existing(hosts=hung, started=True, attempt=2, ended=SHORT_ONES[:1]), FACTS
        ),
        "every wait": Plan(
            desired=Down("demo"),
            steps=tuple(Wait(on=one, reason="why", until=9.0) for one in WaitFor),
            ending=Done("done"),
            now=5.0,
        ),
        "every other action": Plan(
            desired=Down("demo"),
            steps=odd,
            ending=GiveUp(code="cloud", status=1, what="what", why="why", next_step=NextStep(words="next")),
            now=5.0,
        ),
    }


def on_block(**changes: object) -> Observed:
    intent = Intent(
        generation=1,
        name="demo-1",
        candidate=candidate(2, market=CapacityBlock("cr-1")),
        state=IntentState.ACCEPTED,
        since=900.0,
    )
    return existing(intents=(intent,), slice_ends=45_000.0, **changes)


def test_a_preview_shows_when_the_machines_of_a_block_start_and_are_taken_as_far_as_known() -> None:
    run = sample_run(2, candidates=(candidate(2, market=CapacityBlock("cr-1")),))

    def shown(observed: Observed) -> str:
        return " ".join(preview.render_plan(make_plan(run, observed, FACTS), "text").split())

    known = shown(on_block())
    assert "at 12:20 UTC it is asked to save and stop, its machines are taken from 12:30 UTC on" in known
    unknown = shown(Observed(now=1000.0))
    assert "its capacity block may have to start first" in unknown
    assert (
        "10 min before the provider takes a capacity block's machines, the program is asked to save and stop" in unknown
    )
    later = on_block(slice_state=SliceState.CREATING, hosts=(), slice_until=100_000.0)
    waits = shown(later)
    assert "waits for its capacity block cr-1: it begins at 1970-01-02 03:46 UTC" in waits


@pytest.mark.parametrize("name", plans())
def test_json_of_every_kind_of_plan_is_valid_against_the_shipped_schema(name: str) -> None:
    document = json.loads(preview_json.render_json(plans()[name]))
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)] == []
    assert len(document["steps"]) == len(plans()[name].steps)


@pytest.mark.parametrize("broken", ["version", "steps", "ending"])
def test_the_schema_is_valid_and_notices_a_missing_part(broken: str) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(preview_json.render_json(plan()))
    document["steps"][0]["surprise"] = 1
    assert not Draft202012Validator(SCHEMA).is_valid(document)
    del document["steps"][0]["surprise"]
    assert Draft202012Validator(SCHEMA).is_valid(document)
    del document[broken]
    assert not Draft202012Validator(SCHEMA).is_valid(document)


@pytest.mark.parametrize("name", plans())
@pytest.mark.parametrize("form", ["text", "json", "sh"])
def test_no_format_shows_a_secret(name: str, form: preview.PreviewFormat) -> None:
    shown = preview.render_plan(plans()[name], form, verbose=True)
    assert CLEAR not in shown
    assert shown.endswith("\n")


def test_verbose_text_shows_every_action_in_order_with_its_requests_and_scripts() -> None:
    shown = preview_text.render_text(plan(), verbose=True, command="orch launch task.yaml")
    expected = [
        "v5litepod-16: 4 hosts x 4 chips, spot, sample/us-west4/us-west4-a",
        "$12.34/h for 4 hosts (price list, 2026-11-01)",
        "price not known",
        "restarts   3 after a loss of hosts, 1 after a failure of the program",
        " 1. create 'demo-1'",
        "sample: POST /slices/demo-1",
        "cloud post --name demo-1",
        "… wait for the provider: 'demo' is creating (at most 30 min)",
        "… wait for SSH on hosts 0-3 (at most 5 min)",
        " 2. send workdir to hosts 0-3: 321 files, 4.8 MiB",
        " 3. provide s3://b/data at /data on hosts 0-3",
        " 4. set up hosts 0-3",
        "| pip install -r requirements.txt",
        " 5. start job 1-a1 (attempt 1) on hosts 0-3",
        "ORCH_RANK=0..3",
        "(address of host 0, known after create):29500",
        "HF_TOKEN=****",
        "| python train.py --lr '1e-3' \"$ORCH_RANK\"",
        "… wait for the end of the program",
        " 7. end 'demo-1'",
        " 8. close the record of 'demo-1'",
        "Result:",
        "To do it: orch launch task.yaml",
    ]
    at = 0
    for piece in expected:
        found = shown.find(piece, at)
        assert found >= 0, f"{piece!r} is missing, or out of order"
        at = found


@pytest.mark.promise("P26")
def test_the_schema_names_every_action_wait_cause_and_strategy_and_no_other() -> None:
    steps = {step["properties"]["do"]["const"]: step for step in SCHEMA["$defs"]["step"]["oneOf"]}
    kinds = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Action)}
    assert set(steps) == kinds | {"wait"}
    assert set(steps["wait"]["properties"]["on"]["enum"]) == set(WaitFor)
    assert set(SCHEMA["$defs"]["cause"]["enum"]) == set(EndCause)
    run = SCHEMA["$defs"]["plan"]["properties"]["wanted"]["oneOf"][0]["properties"]
    assert set(run["recovery"]["properties"]["strategy"]["enum"]) == set(Strategy)


def test_json_shows_limits_and_what_recovery_depends_on() -> None:
    request = json.loads(preview_json.render_json(plans()["with limits"]))["wanted"]
    assert request["limits"] == {"hours": 12.0, "dollars": 1500.0}
    assert request["recovery"] == {
        "strategy": "FAILOVER",
        "restart_on_exit_codes": [3, 4],
        "fail_on_exit_codes": [42],
        "capacity_wait_seconds": 86400.0,
        "first_capacity_wait_seconds": 1800.0,
        "hang_seconds": 1800.0,
    }
    assert request["restarts"] == {"preemptions": 5, "failures": 2, "storage_failures": 3}
    assert request["idle"] == {"minutes": 30, "then": "stop"}
    plain = json.loads(preview_json.render_json(plan()))["wanted"]
    assert plain["limits"] == {"hours": None, "dollars": None}
    assert plain["idle"] is None
    assert plain["recovery"]["hang_seconds"] is None


def test_text_shows_limits_and_what_recovery_depends_on() -> None:
    shown = preview_text.render_text(plans()["with limits"], verbose=True, width=200)
    for piece in (
        "exit 3, 4 counts as a loss, not as a failure",
        "never after exit 42",
        "no progress for 30 min is treated as a hang, and counts as a loss",
        "a replacement is requested where the loss was first",
        "waits for a replacement up to 24 h",
        "waits for the first machines up to 30 min",
        "limits     the machines are ended 12 h after the first machine exists, or at $1,500.00 by list price",
        "; the hosts enforce this too, without orch",
        "start the timer that enforces the limits on hosts 0-3",
        "| install the timer",
    ):
        assert piece in shown, piece
    plain = preview_text.render_text(plan())
    assert "limits" not in plain
    assert "timer" not in plain


def test_text_says_when_a_hang_of_an_own_program_is_seen() -> None:
    given = plans()["with limits"]
    assert isinstance(given.desired, Run)
    own = replace(given, desired=replace(given.desired, budgets=replace(given.desired.budgets, reports_steps=False)))
    shown = " ".join(preview_text.render_text(own).split())
    assert (
        "where your program reports its steps (orch_run, $ORCH_HEARTBEAT_FILE), no progress for 30 min is treated"
        in shown
    )
    assert "and counts as a loss; without reports no hang is seen" in shown
    assert "reports" not in preview_text.render_text(given)


def test_script_sets_the_timer_before_anything_else_on_the_hosts_and_names_the_limits() -> None:
    shown = preview_sh.render_sh(plans()["with limits"])
    assert "# Limits: the machines are ended 12 h after" in shown
    assert shown.index("install the timer") < shown.index("send workdir")


def test_a_pause_is_shown_and_is_a_sleep_in_the_script() -> None:
    one = plans()["after two short attempts"]
    pause = next(step for step in one.steps if isinstance(step, Wait) and step.on is WaitFor.PAUSE)
    assert pause.until is not None
    assert "a short pause before attempt 3 (at most" in preview_text.render_text(one)
    seconds = ceil(pause.until - one.now)
    assert 1 <= seconds <= 7, "5 s, and a quarter of it either way, since a second ago"
    assert f"\nsleep {seconds}\n" in preview_sh.render_sh(one)
    assert "(at most 0 s)" not in preview_text.render_text(one)
    document = json.loads(preview_json.render_json(one))
    assert [step["on"] for step in document["steps"] if step["do"] == "wait"].count("pause") == 1


def test_a_wait_after_a_pause_is_shown_with_its_own_length() -> None:
    lost = Intent(
        generation=1,
        name="demo-1",
        candidate=candidate(2),
        state=IntentState.DELETED,
        since=900.0,
        cause=EndCause.PREEMPTED,
        why="taken",
    )
    short = (replace(SHORT_ONES[0], generation=1), SHORT_ONES[1])
    one = make_plan(sample_run(2), Observed(now=1000.0, intents=(lost,), ended=short, attempt=3), FACTS)
    assert isinstance(one.steps[0], Wait)
    assert one.steps[0].on is WaitFor.PAUSE
    assert "'demo' is creating (at most 30 min)" in preview_text.render_text(one)


def test_the_hosts_of_timers_and_stacks_belong_to_the_plan() -> None:
    actions: tuple[Action, ...] = (ArmTimer("d", Text.of("true"), (3,)), CollectStacks("1-a1", "why", (5,)))
    assert preview_format.list_ranks(Plan(desired=Down("demo"), steps=actions, ending=Done("done"), now=0.0)) == (3, 5)


def test_a_planned_next_attempt_has_no_stacks_yet() -> None:
    after = assume_success(existing(stacks_collected=True), NextAttempt(attempt=2, cause=EndCause.HUNG, why="why"))
    assert (after.attempt, after.stacks_collected) == (2, False)


def test_every_format_shows_the_recovery_of_a_hung_program_in_order() -> None:
    one = plans()["hung"]
    expected = ["collect_stacks", "end_attempt", "stop_job", "next_attempt", "start_job"]
    done = [step["do"] for step in json.loads(preview_json.render_json(one))["steps"] if step["do"] in expected]
    assert done == expected
    for shown in (preview_text.render_text(one, width=200), preview_sh.render_sh(one)):
        at = [shown.index(piece) for piece in ("the stacks of job 1-a2", "(hung)", "stop job 1-a2", "start job 1-a3")]
        assert at == sorted(at)


def test_text_of_a_plan_that_stops_gives_the_reason_and_the_next_command() -> None:
    shown = preview_text.render_text(plans()["nothing there"])
    assert "Stops there: [not-found]" in shown
    assert "next: orch launch, or orch resume, with -c demo" in shown
    assert "To do it" not in shown, "it would do nothing"


def test_text_without_steps_names_no_command() -> None:
    shown = preview_text.render_text(plans()["down of nothing"], command="orch down demo")
    assert "Nothing to do" in shown
    assert "To do it" not in shown


def test_text_cannot_be_spoofed_by_control_characters() -> None:
    hostile = "a\x1b[2Jb\rc\u202ed"
    shown = preview_text.render_text(plan(cluster=hostile, env=(("X", Text.of(hostile)),)))
    assert all(char == "\n" or char.isprintable() for char in shown)
    assert "a\\x1b[2Jb\\x0dc\\u202ed" in shown


def test_verbose_text_shows_long_lists_in_full() -> None:
    ready = existing(
        intents=(Intent(generation=1, name="demo-1", candidate=candidate(40), state=IntentState.ACCEPTED, since=0.0),),
        hosts=tuple(
            HostView(rank=rank, internal_ip=Text.of(f"10.0.0.{rank}"), contact=Contact.OK) for rank in range(40)
        ),
    )
    long = make_plan(sample_run(40, teardown=TeardownPolicy.KEEP), ready, FACTS)
    assert "10.0.0.17" not in preview_text.render_text(long)
    assert "10.0.0.17" in preview_text.render_text(long, verbose=True)
    body = {"keys": [f"key-{index}" for index in range(100)]}
    end = Plan(
        desired=Down("d"),
        steps=(
            EndSlice(
                name="d-1",
                cause=EndCause.REQUESTED,
                why="w",
                request=Request(service="s", method="m", target="t", body=body),
            ),
        ),
        ending=Done("d"),
        now=0.0,
    )
    assert "key-50" not in preview_text.render_text(end)
    assert "key-50" in preview_text.render_text(end, verbose=True)


def test_text_keeps_to_the_width() -> None:
    for width in (80, 100, 140):
        lines = preview_text.render_text(plans()["with limits"], width=width).splitlines()
        assert max(map(len, lines)) <= width


def test_price_that_is_not_known_is_never_shown_as_zero() -> None:
    assert preview_format.format_price(candidate(price_per_hour=None, price_note="")) == "price not known"
    assert preview_format.format_price(candidate(price_per_hour=0.0)).startswith("$0.00/h")
    assert "your own" in preview_format.format_price(candidate(price_per_hour=None, market=Owned()))
    document = json.loads(preview_json.render_json(plan()))
    assert [one["price_per_hour"] for one in document["wanted"]["candidates"]] == [12.34, None]


def test_one_chip_is_one_chip() -> None:
    assert ": 1 host x 1 chip, " in preview_format.describe_machines(replace(candidate(), hosts=1, chips_per_host=1))


def test_json_distinguishes_unknown_secret_and_plain() -> None:
    document = json.loads(preview_json.render_json(plan()))
    common = next(step for step in document["steps"] if step["do"] == "start_job")["environment"]["common"]
    assert common["HF_TOKEN"] == {"secret": "HF_TOKEN"}
    assert common["ORCH_COORDINATOR"] == {"parts": [{"unknown": "address of host 0, known after create"}, ":29500"]}
    assert common["LR"] == "1e-3"
    assert common["SKYPILOT_TASK_ID"] == {"unknown": "run id made at launch"}


def test_json_lists_each_host_of_a_small_slice_and_the_ends_of_a_large_one() -> None:
    def environment(hosts: int) -> dict[str, dict[str, dict[str, str]]]:
        document = json.loads(preview_json.render_json(plan(hosts)))
        shown: dict[str, dict[str, dict[str, str]]]
        shown = next(step for step in document["steps"] if step["do"] == "start_job")["environment"]
        return shown

    small, large = environment(64), environment(65)
    assert [small["per_host"][str(rank)]["ORCH_RANK"] for rank in range(64)] == [str(rank) for rank in range(64)]
    assert list(large["first_and_last_host"]) == ["0", "64"]
    assert "per_host" not in large


def test_per_rank_and_the_whole_environment_agree_for_every_rank() -> None:
    ips = tuple(Text.of(f"10.0.0.{rank}") for rank in range(8))
    for common in ((), (("ORCH_RANK", Text.of("mine")),)):
        for setup in (False, True):
            env = HostEnvironment(
                common=common,
                internal_ips=ips,
                chips_per_host=4,
                accelerator="v5e",
                port=29500,
                task_id=Text.of("t"),
                for_setup=setup,
                num_slices=2,
            )
            base = dict(env.for_rank(0))
            for rank in range(8):
                whole = dict(env.for_rank(rank))
                assert {name: Text.of(value) for name, value in env.per_rank(rank)}.items() <= whole.items()
                differing = {name for name, value in whole.items() if value != base[name]}
                assert differing <= {name for name, _ in env.per_rank(rank)}


def test_a_slice_of_1024_hosts_is_previewed_in_a_moment() -> None:
    large = plan(1024)
    small = plan(4)
    for form in ("text", "json", "sh"):
        preview.render_plan(small, form)
        times = [(_seconds(small, form), _seconds(large, form)) for _ in range(15)]
        quick, slow = (min(column) for column in zip(*times, strict=True))
        assert slow < 40 * quick, f"{form}: 256 x the hosts cost {slow / quick:.0f} x the time"
        assert len(preview.render_plan(large, form)) < 2 * len(preview.render_plan(small, form))


def _seconds(one: Plan, form: preview.PreviewFormat) -> float:
    gc.disable()  # a collection would visit what all tests before have left
    try:
        start = time.thread_time()  # that of the process is coarse under a limit of its time
        preview.render_plan(one, form)
        return time.thread_time() - start
    finally:
        gc.enable()


def test_preview_loads_no_heavy_library_and_only_the_requested_format() -> None:
    code = (
        "import sys, orchestrator.plan.preview as p\n"
        "heavy = {'rich', 'click', 'pydantic', 'jinja2', 'sqlalchemy', 'paramiko', 'yaml'} & set(sys.modules)\n"
        "forms = [m for m in sys.modules if m.startswith('orchestrator.plan.preview_')]\n"
        "print(sorted(heavy), forms)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[] []"


def test_script_asks_for_what_is_unknown_before_its_first_use() -> None:
    lines = preview_sh.render_sh(plan()).splitlines()
    guard = next(i for i, line in enumerate(lines) if line.startswith(': "${HOST_0_ADDRESS:?'))
    uses = [i for i, line in enumerate(lines) if "${HOST_0_ADDRESS}" in line]
    assert uses and guard < min(uses)
    assert lines.index(': "${HF_TOKEN:?set this secret}"') < min(
        i for i, line in enumerate(lines) if "cloud post" in line
    )
    assert sum(line.startswith(': "${HOST_0_ADDRESS:?') for line in lines) == 1


def test_script_waits_for_the_program_before_it_ends_the_machines() -> None:
    shown = preview_sh.render_sh(plan())
    assert shown.index("setsid") < shown.index("tail --pid") < shown.index("cloud delete")


def test_script_uses_the_pinned_ssh_options_of_known_hosts() -> None:
    address = HostAddress(
        rank=0,
        alias="demo-1-0",
        host="127.0.0.1",
        port=2222,
        user="me",
        identity_file=Path("/keys/id"),
        known_hosts=Path("/keys/known"),
        internal_ip="10.0.0.0",
        host_key="ssh-ed25519 A",
    )
    shown = preview_sh.render_sh(plans()["resume"], hosts=(address,))
    assert "0) ssh -p 2222 -F none -o HostKeyAlias=demo-1-0 -o " in shown
    assert "IdentitiesOnly=yes" in shown
    assert "HostKeyAlias=demo-1-0" in shown
    assert "HOST_0_SSH" not in shown
    assert ': "${HOST_1_SSH:?' not in shown  # its steps need no wait; on_host asks for it by name


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3), "0-3"), ((5, 0, 1, 9), "0-1,5,9"), (tuple(range(1024)), "0-1023")],
)
def test_ranks_collapse_to_ranges(ranks: tuple[int, ...], shown: str) -> None:
    assert format_ranks(ranks) == shown


def test_scattered_ranks_are_cut_and_counted() -> None:
    assert len(format_hosts(range(0, 1024, 2))) < 60
    assert "512 in all" in format_hosts(range(0, 1024, 2))


def test_an_unknown_market_is_a_plan_all_the_same() -> None:
    document = json.loads(preview_json.render_json(plan(candidates=(candidate(market=OnDemand()),))))
    assert document["wanted"]["candidates"][0]["market"] == {"kind": "on_demand"}
    assert Text.of(Unknown("x")).preview() == "(x)"


def test_a_request_is_shown_with_all_that_goes_before_and_after_it_in_order() -> None:
    before, after = (
        Request(service="s", method="POST", target="first"),
        Request(service="s", method="POST", target="last"),
    )
    whole = Request(service="s", method="POST", target="main", why="only there", before=(before,), after=(after,))
    end = Plan(
        desired=Down("d"),
        steps=(EndSlice(name="d-1", cause=EndCause.REQUESTED, why="w", request=whole),),
        ending=Done("d"),
        now=0.0,
    )
    for form in get_args(preview.PreviewFormat):
        shown = preview.render_plan(end, form, verbose=True)
        places = [shown.index(word) for word in ("first", "main", "only there", "last")]
        assert places == sorted(places) or form == "json", form
    request = json.loads(preview.render_plan(end, "json"))["steps"][0]["request"]
    found = [request["before"][0]["target"], request["why"], request["after"][0]["target"]]
    assert found == ["first", "only there", "last"]
    assert "end 'd-1' (w): 3 requests (s)" in preview.render_plan(end)


def test_verbose_text_shows_a_long_text_once_and_names_the_complete_command() -> None:
    long = "x" * 5000
    request = Request(
        service="s", method="POST", target="t", body={"script": Text.of(long)}, command=(Text.of("tool"), Text.of(long))
    )
    end = Plan(
        desired=Down("d"),
        steps=(EndSlice(name="d-1", cause=EndCause.REQUESTED, why="w", request=request),),
        ending=Done("d"),
        now=0.0,
    )
    assert "xxx" not in preview.render_plan(end)
    shown = preview.render_plan(end, verbose=True)
    assert shown.count(long) == 1 and shown.count("(script)") == 2 and "-o sh has the command to paste" in shown
    assert long in preview.render_plan(end, "sh")


def test_places_that_differ_in_nothing_else_are_shown_together() -> None:
    def at(zone: str, price: float) -> Candidate:
        return replace(candidate(), region="r", zone=zone, price_per_hour=price)

    found = preview_format.group_by_place([at("a", 1.0), at("b", 1.0), at("c", 2.0), at("d", 1.0)])
    assert [[one.zone for one in several] for several in found] == [["a", "b"], ["c"], ["d"]]
    desired = replace(sample_run(), candidates=(candidate(), at("a", 1.0), at("b", 1.0), at("c", 2.0)))
    shown = preview_text.render_text(plan(candidates=desired.candidates))
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    others = [line for line in lines if line.startswith(("or else", "then in"))]
    machines = "or else v5litepod-16: 4 hosts x 4 chips, spot"
    assert others == [f"{machines}, sample/r/a", "then in sample/r/b", f"{machines}, sample/r/c"]


def test_the_summary_has_one_line_for_each_step_with_hosts_bytes_and_requests() -> None:
    shown = preview_text.render_text(plan(), width=80, command="orch launch task.yaml").splitlines()
    steps = [line for line in shown if re.match(r" *\d+\. ", line)]
    assert steps == [
        " 1. create 'demo-1' (4 hosts): 1 request (sample)",
        " 2. send workdir to hosts 0-3: 321 files, 4.8 MiB",
        " 3. provide s3://b/data at /data on hosts 0-3: script of 33 B",
        " 4. set up hosts 0-3; every host must pass: script of 44 B",
        " 5. start job 1-a1 (attempt 1) on hosts 0-3: script of 53 B",
        " 6. record the result: job 1 on 'demo' succeeded on 4 hosts (exit 0)",
        " 7. end 'demo-1' (the job is over and --down was given): 1 request (sample)",
        " 8. close the record of 'demo-1': the job is over and --down was given",
    ]
    assert "In all: 2 requests, 4 hosts, 4.8 MiB of files to each, 3 scripts" in shown
    assert shown[-1] == "To do it: orch launch task.yaml"


@pytest.mark.parametrize("name", plans())
def test_the_summary_of_every_kind_of_plan_fits_a_screen_of_80_columns(name: str) -> None:
    lines = preview_text.render_text(plans()[name], width=80).splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 80


def test_a_step_that_is_too_long_for_its_line_is_cut_before_its_amount() -> None:
    request = Request(service="s", method="m", target="t")
    end = EndSlice(name="d-1", cause=EndCause.REQUESTED, why="why " * 40, request=request)
    long = Plan(desired=Down("d"), steps=(end,), ending=Done("d"), now=0.0)
    line = next(line for line in preview_text.render_text(long, width=80).splitlines() if line.startswith(" 1."))
    assert len(line) == 80 and line.endswith("…: 1 request (s)")
    assert " ".join(preview_text.render_text(long, width=80, verbose=True).split()).count("why why") == 20


def test_further_candidates_are_counted_in_the_summary_and_listed_with_verbose() -> None:
    machines = tuple(
        candidate(accelerator=f"v5litepod-{size}", price_per_hour=float(size)) for size in (4, 8, 16, 32, 64)
    )
    shown = preview_text.render_text(plan(candidates=machines))
    assert shown.count("  or else    ") == 3 and "2 more choices, up to $64.00/h (all of them with -v)" in shown
    assert preview_text.render_text(plan(candidates=machines), verbose=True).count("  or else    ") == 4


def test_verbose_text_shows_each_script_once_and_then_its_name() -> None:
    script = Text.of("#!/bin/bash\necho the same on every attempt\n")
    actions: tuple[Action, ...] = (ArmTimer("d", script, (0,)), ArmTimer("d", script, (1,)))
    timers = Plan(desired=Down("d"), steps=actions, ending=Done("d"), now=0.0)
    shown = preview_text.render_text(timers, verbose=True)
    assert shown.count("echo the same on every attempt") == 1
    assert shown.count("'timer'") == 2 and "script 'timer', as above" in shown


def test_a_plan_that_would_be_refused_says_so_in_place_of_the_command() -> None:
    refusal = UserError("no credentials for s3://b", "no instance profile is set", "set aws.instance_profile")
    shown = preview.render_plan(plan(), command="orch launch task.yaml", refusal=refusal)
    assert "Refused: [usage] no credentials for s3://b (exit 2)" in shown
    assert "To do it" not in shown and "Result: " not in shown and "succeeded" not in shown
    document = json.loads(preview.render_plan(plan(), "json", refusal=refusal))
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)] == []
    assert document["refusal"]["code"] == "usage" and document["refusal"]["status"] == 2


def test_the_head_holds_machines_price_limits_and_restarts() -> None:
    head = preview_text.render_head(plans()["with limits"], width=80)
    for piece in ("v5litepod-16: 4 hosts", "$12.34/h for 4 hosts", "or else", "restarts", "limits", "afterwards"):
        assert piece in head, piece
    assert "create 'demo-1'" not in head


def test_another_machine_has_its_speed_in_two_plain_digits() -> None:
    def one(low: float, high: float) -> dict[str, Any]:
        hardware = {"hardware": {"name": "p5"}, "fits": True, "cost": None}
        return {**hardware, "timing": {"tokens_per_day": (low, high)}, "text": ["memory fits"]}

    _, (_, line) = preview_advice.advice_lines([one(1, 2), one(1.14e11, 2.31e9)])
    assert line == "p5: fits, 110 to 2.3B tokens a day"


def test_labels_of_the_user_never_say_whose_the_machines_are() -> None:
    """Also those of a run whose record is older than the check of the task file."""
    made = plan(labels=(("orch-installation", "other"), ("orch-intent", "other"), ("team", "nlp")))
    (create,) = (action for action in made.actions if isinstance(action, CreateSlice))
    found = {name: value.preview() for name, value in create.spec.labels}
    assert found["orch-installation"] == "inst" and found["team"] == "nlp"
    assert found["orch-intent"] != "other"


def test_a_label_of_the_machines_holds_the_digest_of_the_record_as_far_as_google_allows() -> None:
    digest = "0123456789abcdef" * 4
    (create,) = (action for action in plan(record=digest).actions if isinstance(action, CreateSlice))
    found = dict(create.spec.labels)
    assert found["orch-record"].preview() == digest[:63]
    assert to_google([("orch-record", found["orch-record"])]) == {"orch-record": found["orch-record"]}, "as it is"
    (create,) = (action for action in plan().actions if isinstance(action, CreateSlice))
    assert "orch-record" not in dict(create.spec.labels), "a run without a bucket has no record"
