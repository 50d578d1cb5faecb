"""A prepared command and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.engine.preparation.cluster_match import cluster_mismatch, option_mismatch
from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.hosts import HostOutcome
from orchestrator.plan.desired import Desired, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import EndedAttempt, Observed
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.remote.tree import Tree
from orchestrator.store.records import NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A command with everything that is needed to preview or to fulfil it.

    Attributes:
        cluster: The cluster's name.
        project: The cluster's project; "" for that of the environment.
        verb: The command, e.g. "launch".
        summary: What the cluster is, in words.
        desired: What the command wants, for `decide`.
        recorded: What the store recorded last; a preview starts there.
        facts: How the providers word their requests, for `decide`.
        job: What the store opens before the first step; None for commands that run nothing.
        notes: Lines to print first, such as a normalised name or an assumption of the preview.
        doubts: What a person at a terminal is asked about before it is done: files that the program will not find.
        continued_uid: Uid of the cluster whose recorded job is continued; "" for a new command. When that cluster is
            absent or stopped, nothing is created or started.
        forced: What the audit says where it changes the cluster of another member; "" elsewhere.
        refused: Why the task itself cannot work; see `refusal`.
        accept_host_keys: Whether the user confirmed whatever keys new machines of theirs present.
        identity: Path of the private key for hosts that orch made, in place of this computer's own; "" for that.
        take_over: Whether to claim the run in its bucket from another driver that is at work.
        trusted: Checkpoints without a signature to which someone agreed: their steps by the digests of their manifests.
        trees: The files that it sends, as they were read for the plan.
        advice: What the training needs on each kind of machine, as JSON of trainer/shape/advice.py; () for other tasks.
    """

    cluster: str
    verb: str
    summary: str
    desired: Desired
    recorded: Observed
    facts: Facts
    job: NewJob | None = None
    project: str = ""
    forced: str = ""
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    continued_uid: str = ""
    refused: OrchError | None = None
    take_over: bool = False
    trusted: Mapping[str, int] = field(default_factory=dict[str, int])
    advice: tuple[Mapping[str, Any], ...] = ()
    accept_host_keys: bool = False
    identity: str = ""
    trees: tuple[Tree, ...] = ()

    def refuse_options(self, given: Mapping[str, object]) -> PreparedCommand:
        """Return the command, refused where one of the options would have no effect on the cluster's machines.

        Args:
            given: Options of the command line, by their names.
        """
        if self.refusal() is not None or not isinstance(self.desired, Run):
            return self
        return replace(self, refused=option_mismatch(self.cluster, self.recorded, self.desired.candidates, given))

    def raise_refusal(self) -> None:
        """Raise the OrchError that forbids this command, if there is one."""
        if (refusal := self.refusal()) is not None:
            raise refusal

    def refusal(self) -> OrchError | None:
        """Return why the command can be previewed but not fulfilled, or None."""
        desired, now = self.desired, self.recorded
        if self.refused is None and isinstance(desired, Run) and desired.create and not now.started:
            return cluster_mismatch(self.cluster, now, desired.possible)
        return self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOutput:
    """Output of a program that did not come here before the command ended.

    Attributes:
        ranks: The hosts.
        why: Why it did not come.
        next_step: The command that shows all of it.
    """

    ranks: tuple[int, ...]
    why: str
    next_step: str

    @property
    def what(self) -> str:
        """The missing output, in words."""
        return f"the output of {format_hosts(self.ranks)} is incomplete here"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended.

    Attributes:
        step: The last step of `decide`.
        outcomes: One per host for the last program or setup, in rank order, if there was one.
        job_id: The job's number, if the command had one.
        run_id: The run's id, or "".
        attempts: The attempts that ended before the last one.
        missing_output: What has not come of the program's output; None for nothing.
    """

    step: Done | GiveUp
    outcomes: tuple[HostOutcome, ...] = ()
    job_id: int | None = None
    run_id: str = ""
    attempts: tuple[EndedAttempt, ...] = ()  # those that ended before the last one
    missing_output: MissingOutput | None = None

    @property
    def status(self) -> int:
        """The exit status of the command: that of its program, but not 0 where output of it is missing."""
        return int(self.step.status) or int(Exit.OK if self.missing_output is None else Exit.FAILURE)
