"""What is so now: our durable intents, what the provider says, what each host says.

In a preview the same values describe an imagined world; what only the real world knows is Unknown there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.hosts import JobPhase
from orchestrator.plan.causes import EndCause
from orchestrator.slices import Candidate, SliceState
from orchestrator.values import Text


class IntentState(StrEnum):
    """Life of an intent. A create is safe to repeat in PLANNED; GONE and REFUSED are final."""

    PLANNED = "planned"  # written down; the create may or may not have left
    ACCEPTED = "accepted"  # the provider took the create
    ENDING = "ending"  # we want it gone
    GONE = "gone"  # the provider said that it is gone
    REFUSED = "refused"  # the provider said no: nothing was made


FINAL = frozenset({IntentState.GONE, IntentState.REFUSED})


@dataclass(frozen=True, slots=True)
class Intent:
    """Our durable record of one slice we wanted. since: when it entered its state (epoch seconds).

    born, gone: from when and until when it was paid for, as far as we know; None = not yet.
    """

    generation: int
    name: str
    candidate: Candidate
    state: IntentState
    since: float
    cause: EndCause | None = None
    why: str = ""
    touched: float = 0.0  # when its request was last sent
    born: float | None = None
    gone: float | None = None


class Contact(StrEnum):
    UNTRIED = "untried"
    OK = "ok"
    DOWN = "down"  # refused, unreachable, lost or frozen
    IDENTITY = "identity-mismatch"


@dataclass(frozen=True, slots=True)
class HostView:
    """What one host says. trees: label -> digest it holds; setup: digest of the last setup that passed.

    step: how far the program says it is, if it says so. beat_age: seconds since it last said so, by the host's clock.
    """

    rank: int
    internal_ip: Text
    contact: Contact = Contact.UNTRIED
    trees: tuple[tuple[str, str], ...] = ()
    setup: str = ""
    job: JobPhase = JobPhase.ABSENT
    exit_code: int | None = None
    last_line: str = ""  # of the job's output
    step: int | None = None
    beat_age: float | None = None

    def has(self, label: str, digest: str) -> bool:
        return (label, digest) in self.trees


@dataclass(frozen=True, slots=True)
class Trouble:
    """How the last action failed, when it did. step: the action's name in words.

    lost: every failing host failed by its connection, not by the command: the slice is looked at again before anything
    else. times: how often this step failed in a row. final: trying again cannot help. code, status: of the OrchError.
    """

    step: str
    lost: bool
    what: str
    why: str
    code: str
    status: int
    times: int = 1
    next_step: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt that is over, for the budgets and the history.

    generation: the slice whose loss ended it. at: when it was seen to be over (epoch seconds). exit_code, rank: of the
    host that is to blame, where a program ended. evidence: what else was seen, as JSON, such as {"step": 120}.
    """

    attempt: int
    cause: EndCause
    why: str
    generation: int | None = None
    at: float = 0.0
    exit_code: int | None = None
    rank: int | None = None
    evidence: str = ""

    @property
    def step(self) -> int | None:
        """The last step that was known of it."""
        step = json.loads(self.evidence).get("step") if self.evidence else None
        return step if isinstance(step, int) else None


def noted(step: int | None) -> str:
    """Ended.evidence for what is known."""
    return "" if step is None else json.dumps({"step": step})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the whole job ended; set once, by Conclude."""

    status: int
    code: str
    what: str
    why: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """One look at everything. now: epoch seconds. attempt: the current one of the job, from 1.

    started: the program of this attempt was started at some time (durable). opened_at: the newest generation that
    existed when this job was opened. first_failed: the rank whose program failed first, when that was seen. well_at:
    the last look of this command at which an ACCEPTED slice was READY, or when the command began.
    """

    now: float
    intents: tuple[Intent, ...] = ()
    slice_state: SliceState = SliceState.UNCLEAR
    slice_reason: str = ""
    slice_until: float | None = None  # until when the provider lets the request wait for machines
    slice_ends: float | None = None  # when the provider begins to take the machines back
    hosts: tuple[HostView, ...] = ()
    unclear_since: float | None = None  # since when the provider could not be asked
    contact_since: float | None = None  # since when some host has not answered
    failed_since: float | None = None  # since when some host's program has failed
    attempt: int = 1
    ended: tuple[Ended, ...] = ()
    started: bool = False
    opened_at: int = 0
    first_failed: int | None = None
    well_at: float | None = None
    running_job: str = ""  # folder of the job that the hosts' `job` speaks of
    outcome: Outcome | None = None
    trouble: Trouble | None = None
    cancelled: bool = False  # somebody asked for the end of this job
    wanted_down: bool = False  # somebody asked for `down` meanwhile
    stacks: bool = False  # the stacks of this attempt's program were collected

    @property
    def condemned(self) -> Ended | None:
        """Why the present attempt is being ended, once that is on record."""
        return next((ended for ended in self.ended if ended.attempt == self.attempt), None)

    @property
    def current(self) -> Intent | None:
        """The one intent that is not final, if any."""
        live = [intent for intent in self.intents if intent.state not in FINAL]
        return live[-1] if live else None
