"""The chips of a cluster as squares with their hosts and links, as numbers for an SVG.

Small slices show every chip. Larger ones show one square for each host, so that a drawing never has more than some
hundred shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.documents.topology import ChipPlace, Links, Position, Topology
from orchestrator.messages import count_noun
from orchestrator.service.drawing.chip_marks import ChipMark, Measure, describe_marks, find_mark, find_worst

_Corner = Callable[[Position], tuple[float, float]]  # the upper left corner of a chip
_Marks = Mapping[int, Sequence[ChipMark]]  # by rank

CELL, GAP, MARGIN = 18, 6, 10
MOST_CHIPS = 256
MOST_HOSTS = 1024
_HOSTS_IN_A_ROW = 32
_SHOWN_WIDTH = 420
_MOST_WIDTH = 480  # planes beside one another; more of them begin another row


class HostHealth(StrEnum):
    """What is known of a host; each has its own shape and words, not only its own colour."""

    READY = "ready"
    BEHIND = "behind"
    SILENT = "does not answer"
    LOST = "lost"
    UNKNOWN = "not known"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The health of a host, with the words for it."""

    health: HostHealth
    words: str

    @classmethod
    def of(cls, health: HostHealth) -> HostState:
        """Return a health of which no more is known."""
        return cls(health=health, words=health.value)


_UNKNOWN = HostState.of(HostHealth.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One chip, or one host of a large slice; its mark is None where the state of its host is drawn."""

    x: float
    y: float
    size: float
    mark: ChipMark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBox:
    """One host with its chips.

    Attributes:
        state: Its health in words.
        name: Its words for those who do not see it.
        squares: Its chips; one for the host in a drawing of hosts.
    """

    rank: int
    health: HostHealth
    state: str
    name: str
    x: float
    y: float
    width: float
    height: float
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A link between chips; `around` for one that leads from the last chip to the first."""

    x1: float
    y1: float
    x2: float
    y2: float
    around: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipDrawing:
    """A drawn cluster.

    Attributes:
        labels: Coordinates and text: names of planes and machines.
        left_out: Hosts beyond the most that are drawn.
    """

    width: float
    height: float
    hosts: tuple[HostBox, ...]
    lines: tuple[Line, ...]
    labels: tuple[tuple[float, float, str], ...]
    left_out: int = 0

    @property
    def marks(self) -> tuple[ChipMark, ...]:
        """All that is drawn on chips."""
        return tuple(one.mark for host in self.hosts for one in host.squares if one.mark is not None)

    @property
    def scale(self) -> float:
        """How much larger than its numbers it is shown: small slices fill their panel."""
        return min(max(_SHOWN_WIDTH / self.width, 1.0), 1.6)


def draw_chips(
    topology: Topology, health: Mapping[int, HostState], marks: _Marks | None = None, measure: Measure = "steps"
) -> ChipDrawing:
    """Draw the chips of a cluster.

    Args:
        topology: How they are connected.
        health: By rank of the host; a host that is not in it is not known.
        marks: What is drawn on the chips of each host, in place of its health.
        measure: What the marks are.
    """
    marks = marks or {}
    if topology.links is Links.NONE or topology.chips > MOST_CHIPS:
        return _draw_hosts(topology, health, marks, measure)
    boxes: list[HostBox] = []
    lines: list[Line] = []
    labels: list[tuple[float, float, str]] = []
    top = float(MARGIN)
    width = 0.0
    for number in range(topology.slices):
        places = list(topology.list_chips(number))
        right, bottom = _draw_slice(topology, places, health, marks, top, boxes, lines, labels)
        if topology.slices > 1:
            labels.append((MARGIN, top + 9, f"slice {number}" if topology.links is Links.MESH else f"host {number}"))
        width, top = max(width, right), bottom + MARGIN
    return ChipDrawing(width=width + MARGIN, height=top, hosts=tuple(boxes), lines=tuple(lines), labels=tuple(labels))


def _draw_slice(
    topology: Topology,
    places: list[ChipPlace],
    health: Mapping[int, HostState],
    marks: _Marks,
    top: float,
    boxes: list[HostBox],
    lines: list[Line],
    labels: list[tuple[float, float, str]],
) -> tuple[float, float]:
    """Add one slice below `top`, planes beside one another in rows; return its right and lower border."""
    columns, rows, planes = topology.sides
    plane_width = columns * (CELL + GAP) + 2 * MARGIN
    head = 16 if topology.slices > 1 or planes > 1 else 0
    plane_height = head + rows * (CELL + GAP) + MARGIN
    beside = min(planes, max(_MOST_WIDTH // plane_width, 1))

    def corner(position: Position) -> tuple[float, float]:
        x, y, z = position
        left, upper = MARGIN + z % beside * plane_width, top + head + z // beside * plane_height
        return left + x * (CELL + GAP), upper + y * (CELL + GAP)

    by_host: dict[tuple[int, int], list[ChipPlace]] = {}
    for place in places:
        by_host.setdefault((place.rank, place.position[2]), []).append(place)
    for (rank, _), own in by_host.items():
        corners = [corner(place.position) for place in own]
        left, upper = min(x for x, _ in corners), min(y for _, y in corners)
        squares = tuple(
            Square(x=x, y=y, size=CELL, mark=find_mark(marks, rank, place.number))
            for place, (x, y) in zip(own, corners, strict=True)
        )
        boxes.append(
            HostBox(
                rank=rank,
                health=health.get(rank, _UNKNOWN).health,
                state=health.get(rank, _UNKNOWN).words,
                name=_name_host(rank, own, health.get(rank, _UNKNOWN), marks.get(rank, ())),
                x=left - GAP / 2,
                y=upper - GAP / 2,
                width=max(x for x, _ in corners) - left + CELL + GAP,
                height=max(y for _, y in corners) - upper + CELL + GAP,
                squares=squares,
            )
        )
    lines += _draw_links(topology, corner)
    labels += [
        (corner((0, 0, z))[0], corner((0, 0, z))[1] - 9, f"z={z}")
        for z in range(planes)
        if planes > 1 and topology.slices == 1
    ]
    return beside * plane_width, top + -(-planes // beside) * plane_height - MARGIN


def _draw_links(topology: Topology, corner: _Corner) -> list[Line]:
    columns, rows, planes = topology.sides
    half = CELL / 2
    found: list[Line] = []
    if topology.links is Links.SWITCH:  # all with all: one bus says it, 28 lines would not
        (x1, y1), (x2, _) = corner((0, 0, 0)), corner((columns - 1, 0, 0))
        return [Line(x1=x1, y1=y1 + CELL + 4, x2=x2 + CELL, y2=y1 + CELL + 4)]
    for z in range(planes):
        for y in range(rows):
            for x in range(columns):
                px, py = corner((x, y, z))
                if x + 1 < columns:
                    found.append(Line(x1=px + CELL, y1=py + half, x2=px + CELL + GAP, y2=py + half))
                if y + 1 < rows:
                    found.append(Line(x1=px + half, y1=py + CELL, x2=px + half, y2=py + CELL + GAP))
        found += _draw_wraps(topology, corner, z)
    return found


def _draw_wraps(topology: Topology, corner: _Corner, z: int) -> list[Line]:
    """Return short ends at the borders along which the last chip is linked to the first."""
    columns, rows, _ = topology.sides
    half, short = CELL / 2, GAP
    found: list[Line] = []
    if topology.wraps[0] and columns > 2:
        for y in range(rows):
            (left, py), (right, _) = corner((0, y, z)), corner((columns - 1, y, z))
            found.append(Line(x1=left - short, y1=py + half, x2=left, y2=py + half, around=True))
            found.append(Line(x1=right + CELL, y1=py + half, x2=right + CELL + short, y2=py + half, around=True))
    if topology.wraps[1] and rows > 2:
        for x in range(columns):
            (px, upper), (_, lower) = corner((x, 0, z)), corner((x, rows - 1, z))
            found.append(Line(x1=px + half, y1=upper - short, x2=px + half, y2=upper, around=True))
            found.append(Line(x1=px + half, y1=lower + CELL, x2=px + half, y2=lower + CELL + short, around=True))
    return found


def _draw_hosts(topology: Topology, health: Mapping[int, HostState], marks: _Marks, measure: Measure) -> ChipDrawing:
    shown = min(topology.hosts, MOST_HOSTS)
    columns = min(max(shown, 1), _HOSTS_IN_A_ROW)
    boxes: list[HostBox] = []
    for rank in range(shown):
        x = MARGIN + rank % columns * (CELL + GAP)
        y = MARGIN + rank // columns * (CELL + GAP)
        state = health.get(rank, _UNKNOWN)
        chips = f", {count_noun(topology.chips_per_host, 'chip')}" if topology.chips_per_host else ""
        mark = find_worst(marks, rank, measure)
        words = f"; {measure}: {mark.words}" if mark is not None else ""
        boxes.append(
            HostBox(
                rank=rank, health=state.health, state=state.words, name=f"host {rank}{chips}, {state.words}{words}",
                x=x - GAP / 2, y=y - GAP / 2,
                width=CELL + GAP, height=CELL + GAP, squares=(Square(x=x, y=y, size=CELL, mark=mark),),
            )
        )  # fmt: skip
    rows = -(-shown // columns)
    return ChipDrawing(
        width=2 * MARGIN + columns * (CELL + GAP),
        height=2 * MARGIN + rows * (CELL + GAP),
        hosts=tuple(boxes),
        lines=(),
        labels=(),
        left_out=topology.hosts - shown,
    )


def _name_host(rank: int, chips: list[ChipPlace], state: HostState, marks: Sequence[ChipMark]) -> str:
    first, last = chips[0].position, chips[-1].position
    place = f"chip {_write(first)}" if first == last else f"chips {_write(first)} to {_write(last)}"
    words = f"; {describe_marks(marks)}" if marks else ""
    return f"host {rank}, {place}, {state.words}{words}"


def _write(position: Position) -> str:
    return ",".join(map(str, position))
