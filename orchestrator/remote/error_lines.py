"""The cause of a failure in what the failed program printed, and the status of the process that failed first.

A launcher, an installer or a shell prints after the program and repeats less: launchers.py has their reports, which are
no causes. The first of these that is found is the cause: the last traceback (of several processes, the first of the
last ones: the others failed because it was gone), lines that look like errors, the last words.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.remote.launchers import ANOTHER_PROCESS, LOST_PEER, RANK_MARK, REPEAT_MARK, compile_reports

READ = 48 * 1024  # bytes at the end of the output: eight tracebacks and a report
_SEPARATOR = " | "  # between lines that are shown as one
_NEXT = "next: "
_MOST = 3  # error lines that are shown
_LONGEST = 200  # characters of one
_NEAR = 20  # lines with words at the end among which one that calls itself an error is taken for the cause
_AFTER = 3  # such lines after one that only has words of a failure, at most: after more, the program continued
_BETWEEN = 5  # lines of other output between the tracebacks of processes that failed together, at most
# A line that calls itself an error, and one that only has words of a failure. Programs print the latter of what they
# do without, also in a warning whose level is not shown: logging.lastResort of Python prints the message alone.
_NAMES_ERROR = re.compile(
    r"(?:(?<![A-Za-z])(?i:error|exception)|(?<=[a-z])(?:Error|Exception))(?![a-rt-z])"
    r"|(?i:(?<![a-z])(?:fatal|panic(?:ked)?)(?![a-z]))|^[eE]: |^[EF]\d{4} "
)
_DESCRIBES_FAILURE = re.compile(
    r"(?i:(?<![a-z])(?:fail(?:ed|s|ures?|ing)?|abort(?:ed|ing)?|killed|denied|refused|cannot|can't"
    r"|no space|not found|no such|out of memory)(?![a-z]))"
)
# Levels of logging, of glog (https://google.github.io/glog/stable/logging/), and categories of Python.
_WARNING = re.compile(r"\bWARN(?:ING)?\b|\b[A-Za-z]*Warning\b|(?:^|\[)W\d{4} |^warning\b")
_WARNED_AT = re.compile(r".*:\d+: [A-Za-z]*Warning: ")  # of Python; the line of the source follows
_KILLED = 128 + signal.SIGKILL
_LOST_PEER_STATUS = (None, 1, 128 + signal.SIGABRT)  # of an exception that nothing caught, of Python and of C++
_STORAGE_ERROR = re.compile(r"\S* *error\[storage\]: ")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# CPython, https://docs.python.org/3/tutorial/errors.html#exception-chaining
_CHAINED = re.compile(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z_]\w*|\w*(?:rror|xception)|(?<=\.)\w+)(?:\(\w+\))?(?:: .*|:)?", re.ASCII
)
_FRAME = re.compile(r'File "(?:.*/)?([^/"]+)", line (\d+)')
# Who speaks in orch's own scripts (templates/). A next step that another program printed is not ours to repeat as one.
_OURS = re.compile(r"(?:copy|limits|mount|run|scratch|setup|workdir): ")


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Why a program failed.

    Attributes:
        lines: The lines that say so, joined; "" where there is none.
        exit_code: Of the process that failed first, 128 + n for signal n, where its launcher reports that.
        lost_peer: Whether it only reports that a process on another host is gone.
    """

    lines: str
    exit_code: int | None
    lost_peer: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of output, without the mark of its rank."""

    text: str
    indent: int
    rank: str
    reports: bool


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a process as a launcher reports it; `line` is the last one of the report."""

    exit_code: int
    own: frozenset[int]
    line: int


@dataclass(slots=True)
class _Found:
    """The lines of an output by what they say, each with its number.

    Attributes:
        chains: Tracebacks: the exceptions of each, with those during whose handling they were raised.
        errors: Other lines that look like errors.
        others: Lines that only report the end of another process, by the rule without a row.
        words: All other lines with words.
        reported: The exceptions of tracebacks that a report repeats of another process.
    """

    chains: list[list[tuple[int, str]]]
    errors: list[tuple[int, str]]
    others: list[tuple[int, str]]
    words: list[tuple[int, str]]
    reported: list[str]


def find_cause(output: bytes, exit_code: int | None = None) -> FailureCause:
    """Return why a program failed, by the end of its output.

    Args:
        output: Its standard output and standard error.
        exit_code: Its status, which may be that of a launcher.
    """
    lines, end = _read_lines(output[-READ:].decode("utf-8", "replace"))
    found = _sort_lines(lines)
    several = end is not None or any(line.rank for line in lines)
    code = None
    # What a process prints late comes with its mark after the report; a script that continued has none.
    later = [number for number, _ in found.words if end is not None and number > end.line and not lines[number].rank]
    if end is not None and exit_code is not None and not later:
        code = end.exit_code if exit_code in {*end.own, end.exit_code, _wrap(end.exit_code)} else None
    killed = _KILLED in (code, exit_code)  # it had no time for an error: what looks like one may be old
    chosen = _choose(found, several=several, killed=killed)
    no_cause = chosen[-1:] == [text for _, text in found.others[-1:]]
    lost_peer = no_cause and code in _LOST_PEER_STATUS and any(LOST_PEER.search(text) for _, text in found.others)
    return FailureCause(_join(chosen), code, lost_peer)


def find_storage_error(output: bytes) -> str:
    """Return the last error of the bucket that a program printed; "" for none."""
    lines = (_printable(line) for line in re.split(r"[\r\n]", output[-READ:].decode("utf-8", "replace")))
    return next((line for line in reversed([*lines]) if _STORAGE_ERROR.match(line)), "")


def split_next_step(lines: str) -> tuple[str, str]:
    """Return the cause, and the next step of the last message of orch's scripts; "" where there is none.

    Args:
        lines: Error lines as `find_cause` joins them.
    """
    causes: list[str] = []
    step = ""
    for line in lines.split(_SEPARATOR):
        if line.startswith(_NEXT) and causes and _OURS.match(causes[-1]):
            step = line.removeprefix(_NEXT)
        else:
            causes.append(line)
    return _SEPARATOR.join(causes), step


def _read_lines(output: str) -> tuple[list[_Line], _End | None]:
    """Return the lines, those of reports marked, and the end that the last report names."""
    ranks: list[str] = []
    plain: list[str] = []
    for raw in re.split(r"\r\n|[\r\n]", _COLOUR.sub("", output)):
        mark = RANK_MARK.match(raw)
        ranks.append(next(filter(None, mark.groups()), "") if mark else "")
        plain.append(REPEAT_MARK.sub("", raw[mark.end() :] if mark else raw))
    text = "\n".join(plain)
    reported: set[int] = set()
    ends: list[_End] = []
    for row, report, named in compile_reports():
        for match in report.finditer(text):
            first = text.count("\n", 0, match.start())
            last = first + match.group().count("\n")
            reported.update(range(first, last + 1))
            if named is not None and (end := named.search(match.group())):
                ends.append(_End(_status_of(end.groupdict()), row.own, last))
    lines = [
        _Line(_printable(line), len(line) - len(line.lstrip()), rank, number in reported)
        for number, (line, rank) in enumerate(zip(plain, ranks, strict=True))
    ]
    return lines, max(ends, key=lambda one: one.line, default=None)


def _sort_lines(lines: list[_Line]) -> _Found:
    """Sort the lines by what they say. Tracebacks of several processes may be mixed, line by line."""
    found = _Found([], [], [], [], [])
    opened: dict[str, list[int]] = {}  # rank -> indentation of each traceback without its exception so far
    repeated: set[str] = set()  # ranks whose newest traceback began within a report
    places: dict[str, str] = {}  # rank -> the newest frame of its tracebacks
    chained: set[str] = set()  # ranks whose next traceback belongs to the one before
    for number, line in enumerate(lines):
        frames, text = opened.setdefault(line.rank, []), line.text
        if frame := _FRAME.match(text):
            places[line.rank] = f"{frame[1]}:{frame[2]}"
        elif frames and line.rank in places and ": " not in places[line.rank]:
            places[line.rank] += f": {text}"
        if text.endswith(_TRACEBACK):
            frames.append(line.indent)
            (repeated.add if line.reports else repeated.discard)(line.rank)
        elif text.startswith('File "') and not frames:  # its beginning is cut off, or it has none
            frames.append(max(0, line.indent - 2))
        elif _CHAINED.fullmatch(text):
            chained.add(line.rank)
        elif (
            not any(map(str.isalnum, text)) or (frames and line.indent > frames[-1]) or _is_warned_source(lines, number)
        ):
            continue
        elif frames and _EXCEPTION.fullmatch(text):
            frames.pop()
            if not line.reports:
                text = _with_place(_with_next(lines, number), places.get(line.rank, ""))
                _add_exception(found, number, text, chained=line.rank in chained)
            elif line.rank in repeated and not ANOTHER_PROCESS.search(text) and not LOST_PEER.search(text):
                found.reported.append(text)
            chained.discard(line.rank)
        elif not line.reports:
            _add_words(found, number, text)
    return found


def _is_warned_source(lines: list[_Line], number: int) -> bool:
    """Return whether a line is the source that Python's warnings show below them."""
    return number > 0 and lines[number].indent > 0 and _WARNED_AT.match(lines[number - 1].text) is not None


def _add_exception(found: _Found, number: int, text: str, *, chained: bool) -> None:
    if ANOTHER_PROCESS.search(text) or LOST_PEER.search(text):
        found.others.append((number, text))
    elif chained and found.chains:
        found.chains[-1].append((number, text))
    else:
        found.chains.append([(number, text)])


def _add_words(found: _Found, number: int, text: str) -> None:
    if text.startswith(_NEXT) and found.words:  # of a message of orch: what failed, and the next command
        found.errors += [found.words[-1], (number, text)]
    elif ANOTHER_PROCESS.search(text):
        found.others.append((number, text))
    elif (_NAMES_ERROR.search(text) or _DESCRIBES_FAILURE.search(text)) and not _WARNING.search(text):
        found.errors.append((number, text))
    found.words.append((number, text))


def _choose(found: _Found, *, several: bool, killed: bool) -> list[str]:
    """Return the lines that say why the program failed.

    Args:
        found: What it printed.
        several: Whether processes of one program printed them.
        killed: Whether it was ended by SIGKILL.
    """
    near = {number for number, _ in found.words[-_NEAR:]}
    if found.chains and (not killed or found.chains[-1][-1][0] >= min(near, default=0)):
        chain = _first_of_last(found) if several else found.chains[-1]
        later = [] if several else [text for number, text in found.errors if number > chain[-1][0]]
        texts = [text for _, text in chain[-2:]]
        return texts + later[-(_MOST - len(texts)) :] if later else texts
    if found.reported and not killed:
        return found.reported[-1:]
    last = {number for number, _ in found.words[-_AFTER - 1 :]}
    errors = [text for number, text in found.errors if number in (last if _only_describes_failure(text) else near)]
    if errors and not killed:
        return errors
    silent = [text for number, text in found.words if (number, text) not in found.others]
    own = [text for text in silent if not _WARNING.search(text)] or silent
    return own[-1:] + [text for _, text in found.others[-1:]]


def _only_describes_failure(text: str) -> bool:
    return _DESCRIBES_FAILURE.search(text) is not None and _NAMES_ERROR.search(text) is None


def _first_of_last(found: _Found) -> list[tuple[int, str]]:
    """Return the first of the tracebacks at the end between which the program printed nothing else."""
    chosen = found.chains[-1]
    for earlier, later in reversed([*pairwise(found.chains)]):
        if sum(earlier[-1][0] < number < later[0][0] for number, _ in found.words) > _BETWEEN:
            break
        chosen = earlier
    return chosen


def _with_next(lines: list[_Line], number: int) -> str:
    """Return an exception; with the next line where its message only begins there."""
    text = lines[number].text
    more = lines[number + 1].text if text.endswith(":") and number + 1 < len(lines) else ""
    return f"{text} {more}".rstrip()


def _with_place(text: str, place: str) -> str:
    """Return an exception; without a message with the line that raised it, as an `assert` has no other words."""
    return text if ":" in text or not place else f"{text} at {place}"


def _shorten(line: str) -> str:
    """Cut a long line in its middle: an error often ends with what is wrong, after a long path."""
    if len(line) <= _LONGEST:
        return line
    kept = (_LONGEST - 1) // 2
    return f"{line[:kept]}…{line[-kept:]}"


def _join(lines: list[str]) -> str:
    kept: Iterator[str] = (_shorten(line) for line in dict.fromkeys(lines))
    return _SEPARATOR.join([*kept][-_MOST:])


def _printable(line: str) -> str:
    return "".join(c for c in line if c.isprintable()).strip()


def _status_of(end: dict[str, str | None]) -> int:
    """Return the status with which a shell shows an end."""
    if name := end.get("signal"):
        return 128 + signal.Signals[name] if name in signal.Signals.__members__ else 1
    if number := end.get("number"):
        return 128 + int(number)
    code = int(end.get("code") or 1)
    return code if code >= 0 else 128 - code


def _wrap(status: int) -> int:
    """Return the status of a program that calls exit(-n) after a process was ended by signal n."""
    return 256 - (status - 128) if status > 128 else status
