"""Reports of launchers and installers: text that only says that another process failed, and with which status.

The cause of a failure is never in such a report, but in what the other process printed (error_lines.py). Each pattern
is matched against whole lines, without colours and marks of ranks. Sources were read in November 2026; torch 2.13,
accelerate and pip also print their reports in tests/remote/test_launcher_reports.py.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A program that starts others and reports how they failed.

    Attributes:
        name: As its users know it.
        report: Pattern of a report: of one line, or of several.
        end: Pattern within a report: `code`, a negative one for a signal, or `signal` by name, and `rank` where it is
            named; "" where the end of the other process is not reported.
        own: Statuses with which the launcher itself ends then.
        silent: Pattern of commands that start programs of which it does not report every end; for plans.
        source: Public address of the text, or the document that has it.
    """

    name: str
    report: str
    source: str
    end: str = ""
    own: frozenset[int] = frozenset()
    silent: str = ""


LAUNCHERS = (
    Launcher(
        name="torchrun",
        report=(
            r"^.*\bChildFailedError: *\n={10,}\n(?:.*\n)*?={10,}$"
            r"|^.*\btorch[./]distributed[./](?:elastic[./](?:multiprocessing|agent)|run\.py:\d+\]).*$"
        ),
        end=r"^Root Cause .*\n(?:.*\n){0,3} *rank +: (?P<rank>\d+) .*\n *exitcode +: (?P<code>-?\d+) ",
        own=frozenset({1}),
        source="https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/errors/__init__.py",
    ),
    Launcher(
        name="torch.multiprocessing.spawn",
        report=(
            r"^torch\.multiprocessing\.spawn\.Process(?:Raised|Exited)Exception:.*$"
            r"|^-- Process \d+ terminated with the following error:$"
        ),
        end=r"Exception: process \d+ terminated with (?:exit code (?P<code>\d+)|signal (?P<signal>SIG\w+))",
        own=frozenset({1}),
        source="https://github.com/pytorch/pytorch/blob/main/torch/multiprocessing/spawn.py",
    ),
    Launcher(
        name="accelerate launch",
        report=(
            r"^ *File .*\baccelerate/commands/\w+\.py\", line .*\n(?: .*\n)*"
            r"subprocess\.CalledProcessError: Command .*$"
        ),
        end=r"(?:returned non-zero exit status (?P<code>\d+)|died with <Signals\.(?P<signal>SIG\w+): \d+>)\.$",
        own=frozenset({1}),
        source="https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py",
    ),
    Launcher(
        name="DeepSpeed",
        report=r"^.*\[launch\.py:\d+:\w+\].*$",
        end=r"\bexits with return code = (?P<code>-?\d+)$",
        own=frozenset({1}),
        source="https://github.com/deepspeedai/DeepSpeed/issues/3232",
    ),
    Launcher(
        name="mpirun",
        report=(
            r"^Primary job +terminated normally, but \d+ process.*$"
            r"|^a non-zero exit code\.+ Per user-direction, the job has been aborted\.$"
            r"|^\S+ detected that one or more processes exited with non-zero status, thus causing\n.*$"
            r"|^ *Process name: \[\[\d+,\d+\],\d+\]\n *Exit code: +\d+$"
            r"|^\S+ noticed that process rank \d+ with PID \d+ on node \S+ exited on signal \d+.*$"
        ),
        end=(
            r"(?:Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\n *Exit code: +(?P<code>\d+)$"
            r"|process rank \d+ with PID \d+ on node \S+ exited on signal (?P<number>\d+))"
        ),
        own=frozenset({1}),
        source="https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html",
    ),
    Launcher(
        name="Lightning",
        report=r"^.*\[rank: \d+\] Child process with PID \d+ terminated with code -?\d+\. .*$",
        end=r"\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?P<code>-?\d+)\.",
        own=frozenset({137}),  # it sends SIGKILL to itself
        source="https://github.com/Lightning-AI/pytorch-lightning/pull/18218",
    ),
    Launcher(
        name="Ray",
        report=(
            r"^.*\bray\.(?:exceptions\.RayTaskError|train\.\S*(?:TrainingFailed|WorkerGroup|Controller)Error\b).*$"
            r"|^(?:Error: )?Training failed due to (?:worker errors|controller error):$"
            # Ray Train 2.60, train/v2/_internal/execution/worker_group/poll.py: the error of ranks, cut in its middle.
            r"|^\[Rank [\d,]+ Error Snippet\]:$"
            r"(?:\n(?:(?:Traceback| ).*\n|\.\.\. \(Output truncated.*\n.*\n)+SystemExit: [1-9]\d*$)?"
            r"|^Error in training function:$"
            r"|^\[FailurePolicy\] [A-Z]+\n +Source: .*\n +Error count: .*$"
            # `ray stop` and `ray symmetric-run` at their end; scripts/scripts.py and symmetric_run.py.
            r"|^.*\bscripts\.py:\d+ -- .*$|^Command failed with return code \d+$"
            r"|^(?:Did not find any active|Stopped all \d+) Ray processes\.$|^\d+/\d+ stopped\.$"
        ),
        end=r"^SystemExit: (?P<code>\d+)$",
        own=frozenset({1}),
        silent=r"\bray +(?:job|start|submit|symmetric-run)\b|\bray\.train\b",
        source="https://github.com/ray-project/ray/issues/43137",
    ),
    Launcher(
        name="pip",
        report=(
            r"^ *error: (?:subprocess-exited-with-error|metadata-generation-failed|failed-wheel-build-for-install)$"
            r"|^ *\u00d7 .* did not run successfully\.$|^ *│ exit code: \d+$"
            r"|^ *╰─> (?:\[\d+ lines? of output\]|See above .*)$"
            r"|^ *\[end of output\]$|^ *\u00d7 Encountered error while generating package metadata\.$"
            r"|^ *note: This (?:error originates from a subprocess|is an issue with the package mentioned above), .*$"
            r"|^ *hint: See above for .*$|^ *╰─> Failed to build installable wheels for .*$"
            r"|^ *(?:ERROR: )?(?:Failed to build|Failed building \w+ for|Could not build wheels for) .*$"
        ),
        source="https://github.com/pypa/pip/blob/main/src/pip/_internal/exceptions.py",
    ),
    Launcher(
        name="uv",
        report=(
            r"^ *\u00d7 Failed to build .*$|^ *[├╰]─▶ (?:The build backend returned an error|Call to .* failed .*)$"
            r"|^ *\[std(?:err|out)\]$|^ *hint: This (?:usually indicates a problem with the package|error likely) .*$"
        ),
        source="https://github.com/astral-sh/uv/issues/12128",
    ),
    Launcher(
        name="bash",
        report=r"^\S+: line \d+: +\d+ (?:Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point)\b.*$",
        source="https://www.gnu.org/software/bash/manual/html_node/Job-Control-Basics.html",
    ),
    Launcher(
        name="orch",  # its trainer with several processes on a host
        report=r"^run: the process of device \d+ ended with status \d+$",
        source="templates/run/ranks.sh.j2",
    ),
)
# Where no row matches: a line that only says with which status or signal another process ended is no cause either.
ANOTHER_PROCESS = re.compile(
    r"(?i:\b(?:process(?:es)?|child|workers?|subprocess|command|tasks?|jobs?|ranks?|recipe|program)\b.{0,200}?"
    r"\b(?:exit(?:ed|s)?|terminated|died|return(?:ed|s)?|failed|ended|killed)\b.{0,60}?"
    r"\b(?:code|status|signals?)\b[^A-Za-z]{0,4}(?:SIG)?\w)"
    r"|^make(?:\[\d+\])?: \*\*\* .* Error \d+$"
)
# What a process reports that lost another one, which has the cause: gloo in torch 2.13, and NCCL by
# https://docs.coreweave.com/support/sunk/articles/what-do-nccl-errors-mean.md (read 2026-11-30).
LOST_PEER = re.compile(
    r"Connection closed by peer \[|Read error \[[^\]]*\]:\d+: Connection reset by peer"
    r"|remote process exited or there was a network error"
)
# Marks of the rank that printed a line: of torch and `torchrun --tee`, of `mpirun --tag-output`, and of Ray, which
# marks lines of its daemons, too.
RANK_MARK = re.compile(
    r"^ *(?:\[(?:rank|default)(\d+)\]: ?|\[\d+,(\d+)\]<std(?:out|err)>: ?"
    r"|\(((?:(?:\w+ )?pid=\d*|raylet)(?:, ip=[\d.]+)?)\) ?)"
)
# What Ray writes after a line that several processes printed; ray/_private/ray_logging/__init__.py, Ray 2.60.
REPEAT_MARK = re.compile(r" \[repeated \d+x across cluster\](?: \(Ray deduplicates .*)?$")


@functools.cache
def compile_reports() -> tuple[tuple[Launcher, re.Pattern[str], re.Pattern[str] | None], ...]:
    """Return each row with its patterns."""
    return tuple(
        (row, re.compile(row.report, re.MULTILINE), re.compile(row.end, re.MULTILINE) if row.end else None)
        for row in LAUNCHERS
    )


def list_silent_launchers(script: str) -> tuple[str, ...]:
    """Return the launchers in a script that do not report with which status the programs ended that they start."""
    return tuple(row.name for row in LAUNCHERS if row.silent and re.search(row.silent, script))
