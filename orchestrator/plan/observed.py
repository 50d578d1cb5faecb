"""The observed state: our durable intents, the provider's view of the slice, each host's report.

In a preview the same values describe the assumed state; what is not known yet is Unknown there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.hosts import ChipReport, EndedBy, JobPhase
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.slices import Candidate, SliceState
from orchestrator.values import Text


class IntentState(StrEnum):
    """State of an intent. The values are stored and in JSON; texts have the words of the names.

    A create is safe to repeat in PLANNED; DELETED and REFUSED are final.
    """

    PLANNED = "planned"  # recorded; the create may or may not have been sent
    ACCEPTED = "accepted"  # the provider accepted the create
    ENDING = "ending"  # its end is requested
    DELETED = "gone"  # the provider reports it as absent
    REFUSED = "refused"  # the provider refused it: nothing was created

    def __str__(self) -> str:
        return self.name.lower()


FINAL_STATES = frozenset({IntentState.DELETED, IntentState.REFUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Our durable record of one requested slice; all times are epoch seconds.

    Attributes:
        since: When it entered its state.
        last_sent: When its request was last sent.
        billed_from: When billing began, as far as known; None before.
        billed_until: When billing ended; None before.
        account: Whose machines they are, in the words of the provider (protocol.HasAccounts); "" where not known.
        token: By which the provider knows the slice; "" in a preview.
    """

    generation: int
    name: str
    candidate: Candidate
    state: IntentState
    since: float
    cause: EndCause | None = None
    why: str = ""
    last_sent: float = 0.0
    billed_from: float | None = None
    billed_until: float | None = None
    account: str = ""
    token: str = ""


class Contact(StrEnum):
    """SSH contact with one host."""

    UNTRIED = "untried"
    OK = "ok"
    DOWN = "down"  # refused, unreachable, lost or frozen
    IDENTITY = "identity-mismatch"
    DENIED = "denied"  # it accepts no key that we have
    OTHER_VERSION = "other-version"  # its folder is of another version of orch


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The state of one host.

    Attributes:
        trees: Pairs of label and digest that it holds.
        setup: Digest of the last setup that passed.
        ended_by: Why orch, or the host's limits timer, ended the job; it goes before the exit code.
        bucketless: Whether the program ended as it cannot use its bucket, for a reason that does not pass.
        lost_peer: Whether the program failed because a process on another host was gone.
        last_line: Of the job's output; the lines that look like errors, when it failed.
        step: Training step that the program reported, if it reports steps.
        beat_age: Seconds since its last heartbeat, by the host's clock.
        silence: Why there is no contact, with its address.
        remedy: What a person can do about that, or about the job's failure, where it is known; or "".
        role: The IAM role without which the host refuses every key, where IAM decides; or "".
        new_keys: Unconfirmed keys that this job met first: of this own machine, and of the jump hosts before it.
        chips: Its chips, while a page shows them. Nothing is decided by them.
    """

    rank: int
    internal_ip: Text
    contact: Contact = Contact.UNTRIED
    silence: str = ""
    trees: tuple[tuple[str, str], ...] = ()
    setup: str = ""
    job: JobPhase = JobPhase.ABSENT
    exit_code: int | None = None
    ended_by: EndedBy | None = None
    bucketless: bool = False
    lost_peer: bool = False
    last_line: str = ""
    step: int | None = None
    beat_age: float | None = None
    remedy: str = ""
    role: str = ""
    new_keys: tuple[str, ...] = ()
    chips: ChipReport | None = None

    def has(self, label: str, digest: str) -> bool:
        """Return whether the host holds this version of a tree."""
        return (label, digest) in self.trees


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """The failure of the last action.

    Attributes:
        action: Name of the action's type.
        connection_lost: Every failing host failed by its connection, not by the command, so that the slice is
            observed again first.
        what: These texts, `code` and `status` are those of the OrchError.
        times: How often this action failed in a row.
        final: A retry cannot help.
    """

    action: str
    connection_lost: bool
    what: str
    why: str
    code: str
    status: int
    times: int = 1
    next_step: NextStep = NO_STEP
    final: bool = False


@dataclass(frozen=True, slots=True)
class ActionSuccess:
    """The success of the last action, which decide() has to see in its effect.

    Attributes:
        action: Its identity (repeated.identify_action).
        times: How often it succeeded in a row, with nothing but pauses in between.
    """

    action: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """One attempt that has ended, for the budgets and the history.

    Attributes:
        generation: The slice whose loss ended it, if a loss did.
        at: When its end was observed (epoch seconds).
        exit_code: Of the host that is to blame, where a program ended.
        rank: Of that host.
        evidence: Further observations as JSON, such as {"step": 120}.
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
        """The last known training step."""
        step = json.loads(self.evidence).get("step") if self.evidence else None
        return step if isinstance(step, int) else None


def encode_evidence(step: int | None) -> str:
    """Return EndedAttempt.evidence for the last known step."""
    return "" if step is None else json.dumps({"step": step})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a job; recorded once, by Conclude."""

    status: int
    code: str
    what: str
    why: str = ""
    next_step: NextStep = NO_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One observation of everything; all times are epoch seconds.

    Attributes:
        now: Time of the observation.
        slice_until: Until when the provider lets the request wait for machines.
        slice_ends: When the provider begins to take the machines back.
        unclear_since: Since when the provider could not be queried.
        contact_since: Since when a host has not answered.
        failed_since: Since when the program of a host has failed.
        attempt: The current attempt of the job, from 1.
        started: The program of this attempt was started at some time (durable).
        generation_at_open: The newest generation that existed when this job was opened.
        first_failed: The rank whose program failed first, where that was observed.
        healthy_at: When this command last observed an ACCEPTED slice as READY, or when the command began.
        running_job: Folder of the job that the hosts' `job` refers to.
        cancel_requested: The end of this job was requested.
        down_requested: `down` was requested meanwhile.
        epoch: That of the current attempt, claimed in the run's bucket; 0 while it is unknown.
        taken_over: Who has claimed the run in its bucket meanwhile, in words; "" for no one.
        stacks_collected: The stack traces of this attempt's program were collected.
        entered: Some computer has logged in to the hosts of this slice before.
        slice_refusal: Why the provider refused a create that it had accepted, as a record keeps it (plan/refusals.py).
        unwatched_since: Since when no process of this store had looked at machines that are absent now, where that was
            long, and nothing but this record shows whose they are; None otherwise.
        refusal: Why nothing can be said about the slice, nor done with it, before the user acts: credentials of another
            account, a broken SSH configuration.
        over_budget: Candidates that a budget does not allow, each with the end of a job for which it is the only one.
        spent_budget: Which budget is spent and ends this run, in words; "" for none.
        growth: Why the run moves to better machines now, in words; "" where it stays.
        saved: Whether the bucket holds a complete checkpoint of this run; None while that is not known.
        spent_before: US dollars that this run has cost on other clusters, before its resumes; None where a price is not
            known.
    """

    now: float
    intents: tuple[Intent, ...] = ()
    slice_state: SliceState = SliceState.UNCLEAR
    slice_reason: str = ""
    slice_refusal: str = ""
    slice_until: float | None = None
    slice_ends: float | None = None
    hosts: tuple[HostView, ...] = ()
    unclear_since: float | None = None
    contact_since: float | None = None
    failed_since: float | None = None
    attempt: int = 1
    ended: tuple[EndedAttempt, ...] = ()
    started: bool = False
    generation_at_open: int = 0
    first_failed: int | None = None
    healthy_at: float | None = None
    running_job: str = ""
    outcome: Outcome | None = None
    failure: ActionFailure | None = None
    succeeded: ActionSuccess | None = None
    cancel_requested: bool = False
    down_requested: bool = False
    epoch: int = 0
    taken_over: str = ""
    stacks_collected: bool = False
    entered: bool = False
    unwatched_since: float | None = None
    refusal: Outcome | None = None
    over_budget: tuple[tuple[Candidate, Outcome], ...] = ()
    spent_budget: str = ""
    growth: str = ""
    saved: bool | None = None
    spent_before: float | None = 0.0

    @property
    def pending_end(self) -> EndedAttempt | None:
        """The recorded verdict on the current attempt, if it is being ended."""
        return next((ended for ended in self.ended if ended.attempt == self.attempt), None)

    @property
    def current(self) -> Intent | None:
        """The one intent that is not final, if there is one."""
        live = [intent for intent in self.intents if intent.state not in FINAL_STATES]
        return live[-1] if live else None
