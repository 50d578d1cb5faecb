"""Changes as values: an order, its plan, and the interface by which it is carried out, here or by a service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from orchestrator.errors import ConflictError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.preparation.checkpoint_review import CheckpointReview
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.engine.preparation.record_review import RecordReview
    from orchestrator.engine.progress import DescribedNarrator
    from orchestrator.errors import OrchError
    from orchestrator.plan.preview import PreviewFormat
    from orchestrator.task.parse import TaskFile
    from orchestrator.values import Text

Verb = Literal["launch", "resume", "exec", "cancel", "stop", "start", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRecord:
    """Choices of a resume, beyond the newest checkpoint of a run on record.

    Attributes:
        bucket: Of a run of which this computer has no record; None for one on record.
        down: Whether the machines are deleted when the program has ended; None as at its launch.
        again: Whether a run is resumed that has succeeded.
        take_over: Whether it is claimed from another computer that drives it.
        consent: Agrees to a record in a bucket.
        consent_to_load: Agrees to checkpoints that the run did not sign.
        notes: Lines to print with the plan.
    """

    bucket: str | None
    down: bool | None
    again: bool
    take_over: bool
    consent: Callable[[RecordReview], None]
    consent_to_load: Callable[[CheckpointReview], None]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """A command on hosts.

    Attributes:
        line: For the shell.
        hosts: Ranks; None for all.
        workdir: A folder of this computer that is sent first; None for none.
        env: Its variables.
        devices: Whether the bundled trainer is sent, to list devices.
        identity: File of the key to log in with; "" for the usual one.
    """

    line: str
    hosts: tuple[int, ...] | None = None
    workdir: Path | None = None
    env: tuple[tuple[str, Text], ...] = ()
    devices: bool = False
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A change that a person asks for.

    Attributes:
        verb: The command.
        cluster: Its name; "" for a launch, whose task names it, or a resume on the cluster of the run.
        job: The job to cancel; None for the newest running one.
        run: The run to resume, or the cluster whose last run it is.
        down: Whether a launch or resume deletes the machines when the program has ended.
        force: Whether a cluster of another member is meant, too.
        abandon: Whether `down` gives up machines of the person that do not answer, and records without an account.
        file: The task file of a launch, with its one task, as it was read for the computer that carries it out.
        options: Options of a launch by their names; those about machines are refused for a cluster with other machines.
        command: Of an exec.
        force_setup: Whether a launch runs setup again, even where it has succeeded.
        accept_host_keys: Whether the person confirmed whatever keys new machines of theirs present.
        record: What a resume takes from a bucket; None for what is on record.
        here_only: Options that a service cannot serve, by their names: whether each was given.
    """

    verb: Verb
    cluster: str = ""
    job: int | None = None
    run: str = ""
    down: bool = False
    force: bool = False
    abandon: bool = False
    file: TaskFile | None = None
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    command: HostCommand | None = None
    force_setup: bool = False
    accept_host_keys: bool = False
    record: ResumeRecord | None = None
    here_only: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs that a person agrees to.

    Attributes:
        rented: Of machines, in one line; "" for none.
        transfers: Data that leaves its region, a line each.
        large: Whether the transfers cost so much that they need consent by themselves.
    """

    rented: str = ""
    transfers: Sequence[str] = ()
    large: bool = False


class PlannedOrder(ABC):
    """The plan of an order, to be shown or agreed to.

    Attributes:
        verb: The command.
        cluster: The cluster's name.
        notes: Lines to print before anything is done.
        warnings: What is likely to go wrong, a line each.
        doubts: What a person at a terminal is asked about: files that the program will not find.
        ends: Running jobs that end with the machines, a line each.
        idle: What the machines do by themselves when they are idle; "" for nothing.
        has_run: Whether a program of a launch or resume is followed.
    """

    verb: str
    cluster: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    idle: str = ""
    has_run: bool = False

    @property
    @abstractmethod
    def refusal(self) -> OrchError | None:
        """Return why it can be shown but not carried out, or None."""

    @property
    @abstractmethod
    def expected_status(self) -> int:
        """Return the exit status with which the command would end, if each step succeeded."""

    @abstractmethod
    def list_doubtful(self) -> list[str]:
        """Return the lines that stand before the plan where it is shown: notes, warnings, transfers."""

    @abstractmethod
    def render(self, form: PreviewFormat, *, verbose: bool, width: int, command: str | None) -> str:
        """Return the plan as text, JSON or a shell script.

        Args:
            form: Which of them.
            verbose: Include every request and script.
            width: Columns of the text.
            command: The command that does it, to be named in it; None where there is none.

        Raises:
            UserError: A service does not make this form.
        """

    @abstractmethod
    def render_head(self, width: int) -> str:
        """Return what stands above the question about the costs of machines."""


class PlanChangedError(ConflictError):
    """The plan is another one than was agreed to. Nothing was done.

    Attributes:
        planned: The present plan.
        price_rise: From which price to which one it rose; "" where it costs no more.
    """

    code = "plan-changed"

    def __init__(self, what: str, planned: PlannedOrder, price_rise: str) -> None:
        super().__init__(what, "", "the same command again")
        self.planned = planned
        self.price_rise = price_rise


class StoppedWatching(BaseException):
    """A person interrupted a command.

    Attributes:
        lines: What continues without it, and how to come back or to end it.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)
        self.lines = tuple(lines)


class OrderCalls(ABC):
    """Plans and carries out orders.

    Attributes:
        elsewhere: Whether another computer carries them out, with own machines, secrets and settings of clouds.
    """

    elsewhere: bool

    @abstractmethod
    def plan(self, order: Order) -> PlannedOrder:
        """Return what an order would do. Nothing is done.

        Raises:
            OrchError: It cannot be planned.
        """

    @abstractmethod
    def find_costs(self, planned: PlannedOrder) -> tuple[PlannedOrder, Costs]:
        """Return a plan with what is known of its buckets, and the costs to agree to."""

    @abstractmethod
    def record_ends(self, cluster: str, narrator: DescribedNarrator) -> None:
        """Record jobs of a cluster that have ended while no process followed them."""

    @abstractmethod
    def carry_out(self, planned: PlannedOrder, narrator: DescribedNarrator, *, follow: bool) -> CommandResult:
        """Carry out a plan that a person agreed to, and return how it ended.

        Args:
            planned: The plan.
            narrator: Receives what happens meanwhile.
            follow: Whether to stay until a program has ended, and not only until it runs or is queued.

        Raises:
            PlanChangedError: It is another one now.
            StoppedWatching: A person interrupted it.
            OrchError: It was not begun, or cannot be followed.
        """
