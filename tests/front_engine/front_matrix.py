"""The crash matrix over sockets: what is killed on each front of the simulator, and how."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from crash_matrix import Database, Place
from crash_verbs import Verb
from support.front_home import Front, FrontHome
from support.lanes import share_of, spread
from support.simulated import Points, SharedClock, durable, use_home

from orchestrator.simulator.access import Access

TWO_SLICES = ("had two slices", "no record wants")


@dataclass(frozen=True, kw_only=True)
class FrontMatrix:
    """What is killed on a front.

    Attributes:
        front: That serves the cloud.
        proof: Row of the table of docs/promises.md.
        proof_on_server: The same for the store on PostgreSQL.
        verbs: Commands to kill.
        in_full: Commands that only the full lane kills: their requests are those of the others, in another order.
        on_sqlite: How many of `verbs` the core kills (`--changed`: `CHANGED_SHARE` times as many); None: all.
        points_on_server: On PostgreSQL; see crash_matrix.matrix.
        doubles: Share of the pairs of points that the full lane tries.
        kills: See crash_matrix.matrix.
        taken_down: Launches after which `orch down` has more to remove than machines.
        senders: Commands that send together every changing request; (): `verbs`.
        requests: Every changing request.
        patches: Objects, names and values that are replaced in every test.
    """

    front: Front
    proof: str
    proof_on_server: str
    verbs: Sequence[Verb]
    in_full: Sequence[Verb] = ()
    on_sqlite: int | None = None
    points_on_server: Literal["all", "distinct"] = "all"
    doubles: float
    kills: int = 2
    taken_down: Sequence[Verb] = ()
    senders: Sequence[Verb] = ()
    requests: Sequence[str]
    patches: Sequence[tuple[object, str, object]] = ()

    def proof_of(self, database: Database) -> str:
        return self.proof if database == "SQLite" else self.proof_on_server


@dataclass(frozen=True, kw_only=True)
class Case:
    """One verb of a front on one database. turn: chooses the points at which all but the full lane kill it."""

    matrix: FrontMatrix
    verb: Verb
    database: Database
    turn: int

    @property
    def name(self) -> str:
        return f"{self.matrix.front.name}-{self.verb.name}-{self.database}"


def cases_of(matrices: Sequence[FrontMatrix]) -> list[Any]:
    """Return parameters: every verb on both databases, of which all but the full lane have a fixed share.

    On PostgreSQL this is one verb of each front, or three with `--changed`.
    """

    def shared(matrix: FrontMatrix, verbs: Sequence[Verb], database: Database) -> list[Case]:
        count = (matrix.on_sqlite or len(verbs)) if database == "SQLite" else 1
        taken = share_of(list(enumerate(verbs)), count)
        return [Case(matrix=matrix, verb=verb, database=database, turn=turn) for turn, verb in taken]

    def both(matrix: FrontMatrix, verbs: Sequence[Verb]) -> list[Case]:
        return [*shared(matrix, verbs, "SQLite"), *shared(matrix, verbs, "PostgreSQL")] if verbs else []

    found = spread(case for matrix in matrices for case in both(matrix, matrix.verbs))
    in_full = spread(case for matrix in matrices for case in both(matrix, matrix.in_full))
    return [*found, *(pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.full]) for one in in_full)]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A broken provider, and what the matrix must find that it leaves.

    Attributes:
        name: What it does wrong.
        matrix: Of its front.
        verb: The command that is given.
        killed: The point at which it is killed before; "" to give it once.
        finds: Patterns of messages; `{slice}` is the name of the cluster's slice.
        kind: The provider's class; None: the real one.
        patches: Objects, names and values that break the real one.
    """

    name: str
    matrix: FrontMatrix
    verb: Verb
    killed: str = ""
    finds: Sequence[str]
    kind: type[Any] | None = None
    patches: Sequence[tuple[object, str, object]] = ()


@dataclass
class FrontPlace(Place):
    """A Place whose cloud is asked over sockets. opened: makes its home."""

    front: Front = field(kw_only=True)
    access: Access = field(kw_only=True)
    opened: Callable[[Points], FrontHome] = field(kw_only=True)

    def home(self, points: Points | None = None) -> FrontHome:
        use_home(self.live, self.server)
        home = self.opened(points or Points())
        home.hang_up()
        return home

    def left_auxiliary(self) -> list[str]:
        with self.access.open() as cloud:
            return self.front.left(cloud)


@contextmanager
def front_place(
    root: Path, matrix: FrontMatrix, kind: type[Any] | None = None, *, store: str | None = None
) -> Generator[FrontPlace]:
    """Yield a place whose cloud's server is this process's; the commands that are killed are its children.

    Args:
        root: Its folder.
        matrix: Of the front.
        kind: The provider's class; None: the real one.
        store: See Place.server.
    """
    front, clock = matrix.front, SharedClock()
    access = durable(root / "live", clock, zones=front.to_zones(*front.zones), durations=front.durations)
    broken = {} if kind is None else {"kind": kind}
    with front.serve(access) as server, pytest.MonkeyPatch.context() as patch:
        for target, name, value in matrix.patches:
            patch.setattr(target, name, value)
        client = front.connect(server.url)

        def opened(points: Points) -> FrontHome:
            return front.home(access, points, server.url, client, **broken)

        yield FrontPlace(root, server=store, clock=clock, front=front, access=access, opened=opened)
