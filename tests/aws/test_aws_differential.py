"""What a person pastes and what boto3 sends is the same request: every command against the real aws command.

Bash reads the words of each command as the script form of a preview writes them; the aws command reads those words; a
server on the loopback writes down what arrives, and it is compared with what boto3 sends of `Request.body`.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from aws_cases import KNOWN, candidate, families, options, spec
from aws_recorder import Cli, Recorder, Sent, environment, recording
from botocore import xform_name
from support.proof import report

from orchestrator.plan.bash_quoting import Variables, bash_word, quote_literal
from orchestrator.providers.aws import unknowns, userdata
from orchestrator.providers.aws.parameters import filled, revealed
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import CapacityBlock, Request, SliceSpec, Spot
from orchestrator.values import Unknown

pytestmark = [pytest.mark.slow]

PRIVATE, PUBLIC = make_host_key()
USER_DATA = userdata.render(PUBLIC, [PRIVATE] * 4, max_hours=6)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[Recorder]:
    """The environment of boto3 and of the aws command, in this process and in those that it starts."""
    with recording() as found:
        given = environment(found.url, tmp_path)
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "user-data").write_text(USER_DATA)
        logging.disable(logging.CRITICAL)  # the aws command logs every word that it reads
        yield found
        logging.disable(logging.NOTSET)


def planned(made: SliceSpec) -> list[Request]:
    """All that is sent for it in its life."""
    wholes = [PLANNER.create_request(made), PLANNER.end_request(made.name, made.candidate)]
    if not isinstance(made.candidate.market, Spot | CapacityBlock):
        wholes += [ask(made.name, made.candidate) for ask in (PLANNER.stop_request, PLANNER.start_request)]
    return [request for whole in wholes for request in whole.in_order]


def known(folder: Path) -> dict[Unknown, str]:
    return KNOWN | {unknowns.USER_DATA_FILE: str(folder / "user-data"), unknowns.USER_DATA: USER_DATA}


def as_bash_reads(requests: Sequence[Request], folder: Path) -> list[list[str]]:
    """The words of each command, after bash has read the line."""
    variables = Variables()
    lines = [" ".join(bash_word(word, variables) for word in request.command) for request in requests]
    values = known(folder)
    given = [f"{name}={quote_literal(values[unknown])}" for name, unknown in variables.unknowns.items()]
    tell = ['tell() { printf \'%s\\0\' "$#" "$@"; }', *(f"tell {line}" for line in lines)]
    script = "\n".join(["set -eu", *given, *tell])
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    told = iter(done.stdout.split("\0")[:-1])
    return [[next(told) for _ in range(int(count))] for count in told]


def by_boto3(request: Request, folder: Path, sessions: dict[str, Any]) -> None:
    import boto3
    from botocore.config import Config

    words = [word.preview() for word in request.command]
    profile = words[words.index("--profile") + 1] if "--profile" in words else None
    key = f"{profile} {request.service} {request.target.partition('/')[0]}"
    if key not in sessions:
        session = boto3.Session(profile_name=profile)
        region = request.target.partition("/")[0]
        config = Config(retries={"mode": "standard", "total_max_attempts": 1})
        sessions[key] = session.client(request.service, region_name=region, config=config)  # type: ignore[call-overload]  # any
    parameters = cast(dict[str, Any], revealed(filled(request.body, known(folder))))
    getattr(sessions[key], xform_name(request.method))(**parameters)


def test_every_command_sends_what_boto3_sends(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every_case = families(counts=[2]) | options()
    assert len(every_case) > 60
    different = {repr(one.command): one for made in every_case.values() for one in planned(made)}
    requests = list(different.values())
    assert len([one for one in requests if one.method == "RunInstances"]) > 60
    cli, clients = Cli(), dict[str, Any]()
    unequal: list[tuple[list[str], list[Sent]]] = []
    for request, words in zip(requests, as_bash_reads(requests, tmp_path), strict=True):
        assert cli.run(words) == 0, (words, capsys.readouterr())
        by_boto3(request, tmp_path, clients)
        first, second = recorder.taken()
        assert first.operation == request.method
        if first != second:
            unequal.append((words, [first, second]))
        capsys.readouterr()
    counts = {"slices": len(every_case), "different requests": len(requests)}
    report("what the `aws` command sends for the previewed command, against what boto3 sends", counts, len(unequal))
    assert unequal == []


ANSWERS = {
    "GetParameter": '{"Parameter": {"Value": "ami-0123456789abcdef0"}}',
    "DescribeImages": "<imagesSet><item><imageId>ami-0123456789abcdef0</imageId>"
    "<rootDeviceName>/dev/sda1</rootDeviceName></item></imagesSet>",
    "DescribeSubnets": "<subnetSet><item><subnetId>subnet-0123456789abcdef0</subnetId>"
    "<vpcId>vpc-0123456789abcdef0</vpcId></item></subnetSet>",
    "CreateSecurityGroup": "<groupId>sg-0123456789abcdef0</groupId>",
    "AllocateAddress": "<allocationId>eipalloc-0123456789abcdef0</allocationId>",
    "DescribeInstances": "<reservationSet><item><instancesSet>"
    "<item><instanceId>i-0123456789abcdef0</instanceId><amiLaunchIndex>0</amiLaunchIndex><networkInterfaceSet>"
    "<item><networkInterfaceId>eni-1</networkInterfaceId>"
    "<attachment><deviceIndex>0</deviceIndex><networkCardIndex>1</networkCardIndex></attachment></item>"
    "<item><networkInterfaceId>eni-0123456789abcdef0</networkInterfaceId>"
    "<attachment><deviceIndex>0</deviceIndex><networkCardIndex>0</networkCardIndex></attachment></item>"
    "</networkInterfaceSet></item>"
    "<item><instanceId>i-0123456789abcdef1</instanceId><amiLaunchIndex>1</amiLaunchIndex></item>"
    "</instancesSet></item></reservationSet>",
}


def script_of(requests: Sequence[Request], folder: Path) -> str:
    """As plan/preview_sh.py writes it: what one answer gives is put where the next command needs it."""
    variables = Variables()
    lines: list[str] = []
    for request in requests:
        line = " ".join(bash_word(word, variables) for word in request.command)
        for unknown, path in request.gives:
            lines.append(f"{variables.name_of_answer(unknown)}=$({line} --query {quote_literal(path)} --output text)")
        if not request.gives:
            lines.append(f"{line} >/dev/null")
    said = {unknowns.CALLER, unknowns.USER_DATA_FILE}
    given = [
        f"{name}={quote_literal(known(folder)[unknown])}"
        for name, unknown in variables.unknowns.items()
        if unknown in said
    ]
    return "\n".join(["set -eu", *given, *lines])


def test_script_pasted_as_a_whole_finds_out_all_it_needs(recorder: Recorder, tmp_path: Path) -> None:
    """Truly run: bash, and the aws command as a process of its own, from the image to the address of the head."""
    recorder.answers = {
        name: words if words.startswith("{") else f"<{name}Response>{words}</{name}Response>"
        for name, words in ANSWERS.items()
    }
    made = spec(candidate("p4d.24xlarge", image="/aws/service/a", access="eip"))
    requests = [*PLANNER.create_request(made).in_order, *PLANNER.stop_request(made.name, made.candidate).in_order]
    done = subprocess.run(["bash"], input=script_of(requests, tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    by_hand = recorder.taken()
    clients: dict[str, Any] = {}
    for request in requests:
        for _ in request.gives or ((),):
            by_boto3(request, tmp_path, clients)
    assert by_hand == recorder.taken()
