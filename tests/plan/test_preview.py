"""What the preview promises in each of its forms."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from plan_samples import CLEAR, FACTS, candidate, plan, wish

from orchestrator.hosts import HostAddress, JobPhase
from orchestrator.plan import preview, preview_json, preview_sh, preview_text, preview_words
from orchestrator.plan.actions import Action, EndSlice, ForgetSlice, NextAttempt, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import After, Cancel, Down, Start, Stop
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.imagined import Plan, make_plan
from orchestrator.plan.observed import Contact, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.plan.ranks import host_words, rank_ranges
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.slices import CapacityBlock, OnDemand, Owned, Request, Reservation, SliceState
from orchestrator.values import Text, Unknown

SCHEMA = json.loads((Path(preview_json.__file__).parent / "data" / "plan.schema.json").read_text())


def existing(state: SliceState = SliceState.READY, **changes: object) -> Observed:
    intent = Intent(1, "demo-1", candidate(2), IntentState.ACCEPTED, 900.0)
    hosts = tuple(HostView(rank, Text.of(f"10.0.0.{rank}"), Contact.OK) for rank in range(2))
    base = Observed(1000.0, (intent,), state, hosts=hosts if state is SliceState.READY else ())
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def plans() -> dict[str, Plan]:
    running = tuple(replace(host, job=JobPhase.RUNNING) for host in existing().hosts)
    owned = Intent(1, "demo-1", candidate(2, market=Owned()), IntentState.ACCEPTED, 900.0)
    odd: tuple[Action, ...] = (
        NextAttempt(2, EndCause.PREEMPTED, "it was lost", 1),
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
        "every other action": Plan(Down("demo"), odd, GiveUp("cloud", 1, "what", "why", "next"), 5.0),
    }


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
        " 3. copy s3://b/data to /data on hosts 0-3",
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
