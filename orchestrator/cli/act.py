"""What every changing verb does with its wish: show it, or ask and fulfil it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import click

from orchestrator.cli.retype import real_command
from orchestrator.cli.terminal import can_ask, put, say
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ending, Ready
    from orchestrator.plan.imagined import Plan
    from orchestrator.plan.preview import Form
    from orchestrator.slices import Candidate


@dataclass(frozen=True, slots=True)
class Show:
    """Print the plan to stdout in this form. verbose: long lists and texts whole."""

    form: Form
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Perform:
    """Do it. consent: money may be spent without asking. follow: until the program has ended, not only till it runs.

    as_json: stdout gets the result alone, as JSON. prefix: each line of the program's output says whose it is.
    """

    consent: bool = False
    follow: bool = True
    as_json: bool = False
    prefix: bool = True


Manner: TypeAlias = Show | Perform


def carry_out(ready: Ready, manner: Manner) -> int:
    """Show or fulfil the wish; the exit status. Raises OrchError when it was not begun, or was detached from."""
    match manner:
        case Show():
            return show(ready, manner)
        case Perform():
            return perform(ready, manner)


def show(ready: Ready, manner: Show) -> int:
    """The plan on stdout, remarks about it on stderr."""
    from orchestrator.plan.preview import render

    say(*(f"note: {note}" for note in ready.notes))
    text = render(plan_of(ready), manner.form, verbose=manner.verbose, command=real_command(), advice=ready.advice)
    sys.stdout.write(text)
    sys.stdout.flush()
    if (refusal := ready.refusal()) is not None:
        say("this plan would be refused:", *refusal.lines())
    return 0


def perform(ready: Ready, manner: Perform) -> int:
    """Fulfil the wish, drawing what happens."""
    from orchestrator.cli.outcomes import tell

    ready.check()
    say(*_warnings(ready))
    if not manner.consent:
        ask_before_spending(ready)
    _learn_places(ready)
    try:
        ending = _drive(ready, manner) if manner.follow else _leave(ready, manner)
    except OrchError as error:
        if manner.as_json:
            _print_json(ready, _as_ending(error))
        raise
    except KeyboardInterrupt:
        say(*_after_interrupt(ready.cluster))
        return Exit.INTERRUPTED
    if manner.as_json:
        _print_json(ready, ending)
    tell(ending)
    return ending.status


def _warnings(ready: Ready) -> list[str]:
    """By what the training would end, as far as it can be reckoned."""
    return [
        f"warning: on {advice['hardware']['name']} it {concern['words']}: {' '.join(concern['fix'])}".rstrip(": ")
        for advice in ready.advice
        for concern in advice["concerns"]
        if concern["fatal"]
    ]


def _drive(ready: Ready, manner: Perform) -> Ending:
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.engine.drive import drive

    out = sys.stderr if manner.as_json else sys.stdout
    with TerminalNarrator(out, prefix=manner.prefix) as narrator:
        for note in ready.notes:
            narrator.note(note)
        return drive(ready, narrator, follow=manner.follow)


def _learn_places(ready: Ready) -> None:
    """Where the buckets of this run are, so that the next plan can tell what moving data costs."""
    from orchestrator.engine.bucket_places import learn
    from orchestrator.plan.desired import Run

    if isinstance(ready.desired, Run):
        learn([*(mount.source for mount in ready.desired.mounts), ready.job.bucket if ready.job is not None else ""])


def _leave(ready: Ready, manner: Perform) -> Ending:
    """--detach: until the program runs, or until it is queued; an unattended engine goes on from there."""
    from orchestrator.engine import background

    if ready.job is None or ready.job.kind == "exec":
        return _drive(ready, manner)
    ready = background.for_engine(ready)
    same = None if ready.of else background.left_already(ready)
    other = None if same or ready.of else background.busy_with(ready)
    if same is not None:
        ending = same
    elif other is not None:
        say(f"job {other.id} is before it on '{ready.cluster}'")
        ending = background.enqueue(ready)
    else:
        ending = _drive(ready, manner)
    if ending.status == 0:
        background.start_engine(background.secrets_of(ready))
    return ending


def _after_interrupt(cluster: str) -> list[str]:
    """What goes on without us, and how to come back to it."""
    from orchestrator.cli.clusters import reader

    with reader() as store:
        record = store.cluster(cluster)
        running = [job for job in store.jobs(record) if job.state == "running"] if record is not None else []
    if running:
        words = f"stopped watching; job {running[-1].id} goes on"
        return [words, f"  orch watch {cluster}   to watch again", f"  orch cancel {cluster}   to end it"]
    words = "interrupted; what was begun is on record, and the same command again goes on"
    return [words, f"  orch status {cluster}   to look", f"  orch down {cluster}   to end it"]


def _as_ending(error: OrchError) -> Ending:
    from orchestrator.engine.ready import Ending
    from orchestrator.plan.steps import GiveUp

    return Ending(GiveUp(error.code, int(error.exit_status), error.what, error.why, error.next_step))


def plan_of(ready: Ready) -> Plan:
    from orchestrator.plan.imagined import make_plan

    return make_plan(ready.desired, ready.known, ready.facts)


def _print_json(ready: Ready, ending: Ending) -> None:
    import json

    from orchestrator.cli.outcomes import as_json

    put(json.dumps(as_json(ready.cluster, ready.verb, ending), indent=2))


def ask_before_spending(ready: Ready) -> None:
    """Return when nothing is spent or the person agrees. Raises UserError when nobody can be asked."""
    rented = machines_to_pay(ready)
    if not rented:
        return
    if not can_ask():
        raise UserError(
            "this spends money, and there is no terminal to ask on",
            _cost_words(rented),
            "add --yes to agree, or --dry-run to see what would be done",
        )
    say(_cost_words(rented))
    if not click.confirm("go on?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was done")


def machines_to_pay(ready: Ready) -> tuple[Candidate, ...]:
    """What the plan may begin to pay for: machines with a price, or with one that is not known."""
    from orchestrator.plan.actions import CreateSlice, StartSlice
    from orchestrator.plan.desired import Run

    desired, actions = ready.desired, plan_of(ready).actions
    possible: tuple[Candidate, ...] = ()
    if any(isinstance(action, CreateSlice) for action in actions) and isinstance(desired, Run):
        possible = desired.candidates  # the first may be refused, and the others tried
    elif any(isinstance(action, StartSlice) for action in actions) and ready.known.current is not None:
        possible = (ready.known.current.candidate,)
    return tuple(candidate for candidate in possible if not _is_free(candidate))


def _is_free(candidate: Candidate) -> bool:
    from orchestrator.slices import Owned

    return candidate.price_per_hour == 0 or isinstance(candidate.market, Owned)


def _cost_words(rented: tuple[Candidate, ...]) -> str:
    from orchestrator.cli.human import plural, price

    first, *others = rented
    words = f"{plural(first.hosts, 'host')} of {first.accelerator} on {first.where}, {first.market}: "
    words += price(first.price_per_hour) + (f" ({first.price_note})" if first.price_note else "")
    known = [other.price_per_hour for other in others if other.price_per_hour is not None]
    if others:
        most = f", up to {price(max(known))}" if known else ""
        words += f"; {plural(len(others), 'other choice')} if that is refused{most}"
    return words
