"""What the preview promises in each of its forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator
from plan_samples import CLEAR, FACTS, candidate, plan, wish

from orchestrator.hosts import HostAddress, JobPhase
from orchestrator.plan import preview, preview_json, preview_sh, preview_text, preview_words
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    EndAttempt,
    EndSlice,
    ForgetSlice,
    NextAttempt,
    StopJob,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import After, Budgets, Cancel, Down, Limits, Start, Stop, Strategy, TimerWanted
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.imagined import Plan, imagine, make_plan
from orchestrator.plan.observed import Contact, Ended, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.plan.ranks import host_words, rank_ranges
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Owned, Request, Reservation, SliceState
from orchestrator.values import Text, Unknown

SCHEMA = json.loads((Path(preview_json.__file__).parent / "data" / "plan.schema.json").read_text())


TIMER = TimerWanted("t1", Text.of("#!/bin/bash\ninstall the timer\n"))
RICH = Budgets(
    5, 2, restart_on=(3, 4), fail_on=(42,), strategy=Strategy.FAILOVER, capacity_wait=86_400.0,
    capacity_wait_first=1800.0, hang_deadline=1800.0,
)  # fmt: skip
SHORT_ONES = (
    Ended(1, EndCause.PREEMPTED, "lost", None, 990.0),
    Ended(2, EndCause.HUNG, "it did not move", None, 999.0),
)


def existing(state: SliceState = SliceState.READY, **changes: object) -> Observed:
    intent = Intent(1, "demo-1", candidate(2), IntentState.ACCEPTED, 900.0)
    hosts = tuple(HostView(rank, Text.of(f"10.0.0.{rank}"), Contact.OK) for rank in range(2))
    base = Observed(1000.0, (intent,), state, hosts=hosts if state is SliceState.READY else ())
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def plans() -> dict[str, Plan]:
    running = tuple(replace(host, job=JobPhase.RUNNING) for host in existing().hosts)
    hung = tuple(replace(host, step=7, beat_age=3600.0) for host in running)
    owned = Intent(1, "demo-1", candidate(2, market=Owned()), IntentState.ACCEPTED, 900.0)
    odd: tuple[Action, ...] = (
        NextAttempt(2, EndCause.PREEMPTED, "it was lost", 1),
        NextAttempt(3, EndCause.PROGRAM, "it failed", None, 3, 1, 120),
        EndAttempt(3, EndCause.HUNG, "it does not move", 120, 1),
        CollectStacks("1-a3", "it does not move", (0, 1)),
        ArmTimer("d", Text.of("#!/bin/bash\ntrue\n"), (0, 1)),
        *(EndAttempt(4, cause, "why") for cause in EndCause),
        StopJob("1-a1", "why", 2.5, (0, 1, 5)),
        ForgetSlice("demo-1", EndCause.ASKED, ""),
        EndSlice("demo-1", EndCause.BROKEN, "x", Request("s", "DELETE", "t", {"a": [1, None, True, 2.5, {"b": "c"}]})),
    )
    return {
        "launch": plan(),
        "one host": plan(1),
        "large": plan(200),
        "keep": plan(after=After.KEEP),
        "no job": plan(job=None, setup=None),
        "no command": plan(candidates=(candidate(provider="bare"),)),
        "reservation": plan(candidates=(candidate(market=Reservation("r")), candidate(market=CapacityBlock("cr-1")))),
        "exec": make_plan(wish(2, create=False, ranks=(1,)), existing(), FACTS),
        "resume": make_plan(wish(2, resume_from=Text.of("latest")), existing(), FACTS),
        "nothing there": make_plan(wish(create=False), Observed(0.0), FACTS),
        "down": make_plan(Down("demo"), existing(), FACTS),
        "down of owned": make_plan(Down("demo"), existing(intents=(owned,), hosts=running, running_job="1-a1"), FACTS),
        "down of nothing": make_plan(Down("demo"), Observed(0.0), FACTS),
        "stop": make_plan(Stop("demo"), existing(), FACTS),
        "start": make_plan(Start("demo"), existing(SliceState.STOPPED), FACTS),
        "cancel": make_plan(Cancel("demo", "1-a1"), existing(hosts=running), FACTS),
        "over": make_plan(wish(after=After.KEEP), existing(outcome=Outcome(3, "program-failed", "it failed")), FACTS),
        "with limits": plan(limits=Limits(12.0, 1500.0), timer=TIMER, budgets=RICH),
        "after two short attempts": make_plan(wish(2), existing(ended=SHORT_ONES, attempt=3), FACTS),
        "hung": make_plan(
            wish(2, budgets=RICH), existing(hosts=hung, started=True, attempt=2, ended=SHORT_ONES[:1]), FACTS
        ),
        "every wait": Plan(Down("demo"), tuple(Wait(one, "why", 9.0) for one in WaitFor), Done("done"), 5.0),
        "every other action": Plan(Down("demo"), odd, GiveUp("cloud", 1, "what", "why", "next"), 5.0),
    }


def on_block(**changes: object) -> Observed:
    intent = Intent(1, "demo-1", candidate(2, market=CapacityBlock("cr-1")), IntentState.ACCEPTED, 900.0)
    return existing(intents=(intent,), slice_ends=45_000.0, **changes)


def test_a_preview_says_when_the_machines_of_a_block_begin_and_are_taken_as_far_as_it_is_known() -> None:
    run = wish(2, candidates=(candidate(2, market=CapacityBlock("cr-1")),))

    def shown(observed: Observed) -> str:
        return " ".join(preview.render(make_plan(run, observed, FACTS), "text").split())

    known = shown(on_block())
    assert "at 12:20 UTC it is told to save and stop, its machines are taken from 12:30 UTC on" in known
    unknown = shown(Observed(1000.0))
    assert "its capacity block may have to begin first" in unknown
    assert "10 min before AWS takes a capacity block's machines, the program is told to save and stop" in unknown
    later = on_block(slice_state=SliceState.CREATING, hosts=(), slice_until=100_000.0)
    waits = shown(later)
    assert "waits for its capacity block cr-1: it begins at 1970-01-02 03:46 UTC" in waits


@pytest.mark.parametrize("name", plans())
def test_json_of_every_kind_of_plan_is_valid_against_the_shipped_schema(name: str) -> None:
    document = json.loads(preview_json.render(plans()[name]))
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)] == []
    assert len(document["steps"]) == len(plans()[name].steps)


@pytest.mark.parametrize("broken", ["version", "steps", "ending"])
def test_the_schema_is_valid_and_notices_a_missing_part(broken: str) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(preview_json.render(plan()))
    document["steps"][0]["surprise"] = 1
    assert not Draft202012Validator(SCHEMA).is_valid(document)
    del document["steps"][0]["surprise"]
    assert Draft202012Validator(SCHEMA).is_valid(document)
    del document[broken]
    assert not Draft202012Validator(SCHEMA).is_valid(document)


@pytest.mark.parametrize("name", plans())
@pytest.mark.parametrize("form", ["text", "json", "sh"])
def test_no_form_shows_a_secret(name: str, form: preview.Form) -> None:
    shown = preview.render(plans()[name], form, verbose=True)
    assert CLEAR not in shown
    assert shown.endswith("\n")


def test_text_shows_every_action_in_order_with_what_it_does() -> None:
    shown = preview_text.render(plan(), command="orch launch task.yaml")
    wanted = [
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
        " 3. bring s3://b/data to /data on hosts 0-3",
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
        "Ends well:",
        "To do it: orch launch task.yaml",
    ]
    at = 0
    for piece in wanted:
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
    run = SCHEMA["properties"]["wanted"]["oneOf"][0]["properties"]
    assert set(run["recovery"]["properties"]["strategy"]["enum"]) == set(Strategy)


def test_json_shows_limits_and_what_recovery_depends_on() -> None:
    wanted = json.loads(preview_json.render(plans()["with limits"]))["wanted"]
    assert wanted["limits"] == {"hours": 12.0, "dollars": 1500.0}
    assert wanted["recovery"] == {
        "strategy": "FAILOVER",
        "restart_on_exit_codes": [3, 4],
        "fail_on_exit_codes": [42],
        "capacity_wait_seconds": 86400.0,
        "first_capacity_wait_seconds": 1800.0,
        "hang_seconds": 1800.0,
    }
    plain = json.loads(preview_json.render(plan()))["wanted"]
    assert plain["limits"] == {"hours": None, "dollars": None}
    assert plain["recovery"]["hang_seconds"] is None


def test_text_shows_limits_and_what_recovery_depends_on() -> None:
    shown = preview_text.render(plans()["with limits"], width=200)
    for words in (
        "exit 3, 4 counts as a loss, not as a failure",
        "never after exit 42",
        "a program that does not move for 30 min counts as a loss",
        "a replacement is looked for where the loss was first",
        "a replacement is waited for up to 24 h",
        "the first machines are waited for up to 30 min",
        "limits     the machines are ended 12 h after the first machine was there, or at $1,500.00 by list price",
        "; the hosts hold this too, without orch",
        "set the timer that ends hosts 0-3 without orch, too",
        "| install the timer",
    ):
        assert words in shown, words
    plain = preview_text.render(plan())
    assert "limits" not in plain
    assert "timer" not in plain


def test_script_sets_the_timer_before_anything_else_on_the_hosts_and_names_the_limits() -> None:
    shown = preview_sh.render(plans()["with limits"])
    assert "# Limits: the machines are ended 12 h after" in shown
    assert shown.index("install the timer") < shown.index("send workdir")


def test_a_pause_is_shown_and_in_the_script_slept() -> None:
    one = plans()["after two short attempts"]
    pause = next(step for step in one.steps if isinstance(step, Wait) and step.on is WaitFor.PAUSE)
    assert pause.until is not None
    assert "a short pause before attempt 3 (at most" in preview_text.render(one)
    seconds = ceil(pause.until - one.now)
    assert 1 <= seconds <= 7, "5 s, and a quarter of it either way, since a second ago"
    assert f"\nsleep {seconds}\n" in preview_sh.render(one)
    assert "(at most 0 s)" not in preview_text.render(one)
    document = json.loads(preview_json.render(one))
    assert [step["on"] for step in document["steps"] if step["do"] == "wait"].count("pause") == 1


def test_a_wait_after_a_pause_is_told_with_its_own_length() -> None:
    gone = Intent(1, "demo-1", candidate(2), IntentState.GONE, 900.0, EndCause.PREEMPTED, "taken")
    short = (replace(SHORT_ONES[0], generation=1), SHORT_ONES[1])
    one = make_plan(wish(2), Observed(1000.0, (gone,), ended=short, attempt=3), FACTS)
    assert isinstance(one.steps[0], Wait)
    assert one.steps[0].on is WaitFor.PAUSE
    assert "'demo' is creating (at most 30 min)" in preview_text.render(one)


def test_the_hosts_of_timers_and_stacks_belong_to_the_plan() -> None:
    actions: tuple[Action, ...] = (ArmTimer("d", Text.of("true"), (3,)), CollectStacks("1-a1", "why", (5,)))
    assert preview_words.all_ranks(Plan(Down("demo"), actions, Done("done"))) == (3, 5)


def test_an_imagined_next_attempt_has_no_stacks_yet() -> None:
    after = imagine(existing(stacks=True), NextAttempt(2, EndCause.HUNG, "why"))
    assert (after.attempt, after.stacks) == (2, False)


def test_every_form_tells_the_recovery_of_a_hung_program_in_order() -> None:
    one = plans()["hung"]
    wanted = ["collect_stacks", "end_attempt", "stop_job", "next_attempt", "start_job"]
    done = [step["do"] for step in json.loads(preview_json.render(one))["steps"] if step["do"] in wanted]
    assert done == wanted
    for shown in (preview_text.render(one, width=200), preview_sh.render(one)):
        at = [shown.index(words) for words in ("the stacks of job 1-a2", "(hung)", "stop job 1-a2", "start job 1-a3")]
        assert at == sorted(at)


def test_text_of_a_plan_that_cannot_be_done_says_why_and_what_to_type() -> None:
    shown = preview_text.render(plans()["nothing there"])
    assert "Stops there: [not-found]" in shown
    assert "orch resume demo" in shown
    assert "To do it" in shown


def test_text_with_nothing_to_do_says_so_and_names_no_command() -> None:
    shown = preview_text.render(plans()["down of nothing"], command="orch down demo")
    assert "Nothing to do" in shown
    assert "To do it" not in shown


def test_text_cannot_be_spoofed_by_control_characters() -> None:
    hostile = "a\x1b[2Jb\rc\u202ed"
    shown = preview_text.render(plan(cluster=hostile, env=(("X", Text.of(hostile)),)))
    assert all(char == "\n" or char.isprintable() for char in shown)
    assert "a\\x1b[2Jb\\x0dc\\u202ed" in shown


def test_text_shortens_long_lists_and_many_lines_unless_verbose() -> None:
    ready = existing(
        intents=(Intent(1, "demo-1", candidate(40), IntentState.ACCEPTED, 0.0),),
        hosts=tuple(HostView(rank, Text.of(f"10.0.0.{rank}"), Contact.OK) for rank in range(40)),
    )
    long = make_plan(wish(40, after=After.KEEP), ready, FACTS)
    assert "10.0.0.17" not in preview_text.render(long)
    assert "… and 39 more lines" in preview_text.render(long)
    assert "10.0.0.17" in preview_text.render(long, verbose=True)
    body = {"keys": [f"key-{index}" for index in range(100)]}
    end = Plan(Down("d"), (EndSlice("d-1", EndCause.ASKED, "w", Request("s", "m", "t", body)),), Done("d"), 0.0)
    assert "key-50" not in preview_text.render(end)
    assert "97 more" in preview_text.render(end)
    assert "key-50" in preview_text.render(end, verbose=True)


def test_text_keeps_to_the_width_where_words_allow() -> None:
    for width in (80, 100, 140):
        lines = preview_text.render(plan(), width=width).splitlines()
        assert max(map(len, lines)) <= width


def test_price_that_is_not_known_is_never_shown_as_zero() -> None:
    assert preview_words.price(candidate(price_per_hour=None, price_note="")) == "price not known"
    assert preview_words.price(candidate(price_per_hour=0.0)).startswith("$0.00/h")
    assert "your own" in preview_words.price(candidate(price_per_hour=None, market=Owned()))
    document = json.loads(preview_json.render(plan()))
    assert [one["price_per_hour"] for one in document["wanted"]["candidates"]] == [12.34, None]


def test_json_tells_unknown_secret_and_plain_apart() -> None:
    document = json.loads(preview_json.render(plan()))
    common = next(step for step in document["steps"] if step["do"] == "start_job")["environment"]["common"]
    assert common["HF_TOKEN"] == {"secret": "HF_TOKEN"}
    assert common["ORCH_COORDINATOR"] == {"parts": [{"unknown": "address of host 0, known after create"}, ":29500"]}
    assert common["LR"] == "1e-3"
    assert common["SKYPILOT_TASK_ID"] == {"unknown": "run id made at launch"}


def test_json_lists_each_host_of_a_small_slice_and_the_ends_of_a_large_one() -> None:
    def environment(hosts: int) -> dict[str, dict[str, dict[str, str]]]:
        document = json.loads(preview_json.render(plan(hosts)))
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
            env = HostEnvironment(common, ips, 4, "v5e", 29500, Text.of("t"), setup, num_slices=2)
            base = dict(env.of(0))
            for rank in range(8):
                whole = dict(env.of(rank))
                assert {name: Text.of(value) for name, value in env.per_rank(rank)}.items() <= whole.items()
                differing = {name for name, value in whole.items() if value != base[name]}
                assert differing <= {name for name, _ in env.per_rank(rank)}


def test_a_slice_of_1024_hosts_is_previewed_in_a_moment() -> None:
    large = plan(1024)
    small = plan(4)
    for form in ("text", "json", "sh"):
        preview.render(small, form)
        quick, slow = _seconds(small, form), _seconds(large, form)
        assert slow < 40 * quick, f"{form}: 256 x the hosts cost {slow / quick:.0f} x the time"
        assert len(preview.render(large, form)) < 2 * len(preview.render(small, form))


def _seconds(one: Plan, form: preview.Form) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        preview.render(one, form)
        best = min(best, time.perf_counter() - start)
    return best


def test_preview_loads_no_heavy_library_and_only_the_form_asked_for() -> None:
    code = (
        "import sys, orchestrator.plan.preview as p\n"
        "heavy = {'rich', 'click', 'pydantic', 'jinja2', 'sqlalchemy', 'paramiko', 'yaml'} & set(sys.modules)\n"
        "forms = [m for m in sys.modules if m.startswith('orchestrator.plan.preview_')]\n"
        "print(sorted(heavy), forms)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[] []"


def test_script_asks_for_what_is_unknown_before_its_first_use() -> None:
    lines = preview_sh.render(plan()).splitlines()
    guard = next(i for i, line in enumerate(lines) if line.startswith(': "${HOST_0_ADDRESS:?'))
    uses = [i for i, line in enumerate(lines) if "${HOST_0_ADDRESS}" in line]
    assert uses and guard < min(uses)
    assert lines.index(': "${HF_TOKEN:?set this secret}"') < min(
        i for i, line in enumerate(lines) if "cloud post" in line
    )
    assert sum(line.startswith(': "${HOST_0_ADDRESS:?') for line in lines) == 1


def test_script_waits_for_the_program_before_it_ends_the_machines() -> None:
    shown = preview_sh.render(plan())
    assert shown.index("setsid") < shown.index("tail --pid") < shown.index("cloud delete")


def test_script_uses_the_pinned_ssh_words_of_hosts_that_are_known() -> None:
    address = HostAddress(
        0, "demo-1-0", "127.0.0.1", 2222, "me", Path("/keys/id"), Path("/keys/known"), "10.0.0.0", "ssh-ed25519 A"
    )
    shown = preview_sh.render(plans()["resume"], hosts=(address,))
    assert "0) ssh -p 2222 -o IdentitiesOnly=yes -o HostKeyAlias=demo-1-0" in shown
    assert "HostKeyAlias=demo-1-0" in shown
    assert "HOST_0_SSH" not in shown
    assert ': "${HOST_1_SSH:?' not in shown  # its steps need no wait; on_host asks for it by name


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3), "0-3"), ((5, 0, 1, 9), "0-1,5,9"), (tuple(range(1024)), "0-1023")],
)
def test_ranks_collapse_to_ranges(ranks: tuple[int, ...], shown: str) -> None:
    assert rank_ranges(ranks) == shown


def test_scattered_ranks_are_cut_and_counted() -> None:
    assert len(host_words(range(0, 1024, 2))) < 60
    assert "512 in all" in host_words(range(0, 1024, 2))


def test_an_unknown_market_is_a_plan_all_the_same() -> None:
    document = json.loads(preview_json.render(plan(candidates=(candidate(market=OnDemand()),))))
    assert document["wanted"]["candidates"][0]["market"] == {"kind": "on_demand"}
    assert Text.of(Unknown("x")).preview() == "(x)"


def test_a_request_is_shown_with_all_that_goes_before_and_after_it_in_order() -> None:
    before, after = Request("s", "POST", "first"), Request("s", "POST", "last")
    whole = Request("s", "POST", "main", why="only there", before=(before,), after=(after,))
    end = Plan(Down("d"), (EndSlice("d-1", EndCause.ASKED, "w", whole),), Done("d"), 0.0)
    for form in get_args(preview.Form):
        shown = preview.render(end, form)
        places = [shown.index(word) for word in ("first", "main", "only there", "last")]
        assert places == sorted(places) or form == "json", form
    told = json.loads(preview.render(end, "json"))["steps"][0]["request"]
    assert [told["before"][0]["target"], told["why"], told["after"][0]["target"]] == ["first", "only there", "last"]


def test_text_shortens_long_texts_unless_verbose_and_says_where_they_are_whole() -> None:
    long = "x" * 5000
    request = Request("s", "POST", "t", {"script": Text.of(long)}, (Text.of("tool"), Text.of(long)))
    end = Plan(Down("d"), (EndSlice("d-1", EndCause.ASKED, "w", request),), Done("d"), 0.0)
    shown = preview.render(end)
    assert long not in shown and shown.count("4,920 more characters") == 2 and "orch plan -v" in shown
    whole = preview.render(end, verbose=True)
    assert whole.count(long) == 2 and "shortened" not in whole
    assert long in preview.render(end, "sh")


def test_places_that_differ_in_nothing_else_are_shown_together() -> None:
    def at(zone: str, price: float) -> Candidate:
        return replace(candidate(), region="r", zone=zone, price_per_hour=price)

    found = preview_words.alike([at("a", 1.0), at("b", 1.0), at("c", 2.0), at("d", 1.0)])
    assert [[one.zone for one in several] for several in found] == [["a", "b"], ["c"], ["d"]]
    desired = replace(wish(), candidates=(candidate(), at("a", 1.0), at("b", 1.0), at("c", 2.0)))
    shown = preview_text.render(plan(candidates=desired.candidates))
    assert shown.count("  or else    ") == 2
    assert "then in" in shown
