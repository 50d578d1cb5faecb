"""The preview as a script, with hostile content: it parses, passes shellcheck, and works when it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plan_samples import FACTS, candidate, sample_run

from orchestrator.plan import preview_sh
from orchestrator.plan.bash_quoting import Variables, bash_word, heredoc_lines
from orchestrator.plan.desired import JobSpec, MountSpec, SetupSpec, TreeSpec
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Observed
from orchestrator.slices import Candidate, Request, SliceSpec
from orchestrator.values import Secret, Text, Unknown

NASTY = [
    "'", '"', '`', '\\', '$', '$(touch canary)', '`touch canary`', '${HOME}', '!', '\n', '\t', '\r',
    '\x1b[2J', '\x7f', '\u202e', '\xa0', '\x80', 'e\u0301', 'ORCH_SCRIPT', '\nORCH_SCRIPT\n', '\nORCH_SCRIPT_\n',
    'EOF', '#', '# shellcheck disable=all', '\n# shellcheck source=/nowhere extended=maybe\n', '; exit 3',
    '&& false', '}', '{', '%s', '%', '-n', '--', '*', '~', '<<', '|', '\\\n', '\\n', "it's",
]  # fmt: skip
hostile = st.one_of(
    st.lists(st.sampled_from(NASTY), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
anything = st.one_of(hostile, st.text(max_size=12))  # NUL and lone surrogates too
texts = st.builds(
    lambda before, middle, after: Text.of(before, *middle, after),
    anything,
    st.lists(st.one_of(st.builds(Unknown, anything), st.builds(Secret, anything, anything)), max_size=2),
    anything,
)
env_names = st.one_of(st.sampled_from(["A", "LR", "PATH_", "bad name", "x;touch canary", "1", ""]), anything)


class HostileRequests:
    """Puts the slice's own words into a command line, or into a body without one."""

    def __init__(self, word: str, *, command: bool) -> None:
        self.word, self.command = word, command

    def create_request(self, spec: SliceSpec) -> Request:
        return self._request(spec.name, spec.token)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return self._request(name, Text.of(name))

    stop_request = start_request = end_request

    def _request(self, name: str, token: Text) -> Request:
        command = (Text.of("cloud"), Text.of(name), token, Text.of(self.word)) if self.command else ()
        return Request(
            service=self.word, method="POST", target=name, body={self.word: [token, self.word]}, command=command
        )


EPOCH = "UNKNOWN_EPOCH_OF_THIS_START_1_IN_A_NEW_RUN"
MADE_AT_LAUNCH = {"UNKNOWN_ID_MADE_AT_LAUNCH": "u", "UNKNOWN_RUN_ID_MADE_AT_LAUNCH": "r", EPOCH: "1"}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    word = draw(anything)
    return make_plan(
        sample_run(
            draw(st.integers(1, 3)),
            cluster=draw(anything),
            uid=draw(texts),
            run_id=draw(texts),
            trees=(
                TreeSpec(
                    label=draw(anything),
                    source=draw(anything),
                    destination=draw(st.one_of(anything, st.just("~/x"))),
                    digest="d",
                    files=1,
                    total_bytes=1,
                ),
            ),
            mounts=(
                MountSpec(
                    label=draw(anything),
                    source=draw(anything),
                    destination=draw(anything),
                    digest="d",
                    script=draw(texts),
                ),
            ),
            setup=SetupSpec("digest", draw(texts)),
            job=JobSpec(id=1, script=draw(texts)),
            env=((draw(env_names), draw(texts)), (draw(env_names), draw(texts))),
        ),
        Observed(now=0.0),
        Facts({"sample": HostileRequests(word, command=draw(st.booleans()))}),
    )


SLOW_TOOLS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW_TOOLS
@given(plans(), anything)
def test_script_of_hostile_content_parses(one: Plan, command: str) -> None:
    script = preview_sh.render_sh(one, command=command)
    checked = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b""), script


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@settings(parent=SLOW_TOOLS, max_examples=25)
@given(plans(), anything)
def test_script_of_hostile_content_has_no_error_for_shellcheck(one: Plan, command: str) -> None:
    script = preview_sh.render_sh(one, command=command)
    argv = ["shellcheck", "-S", "error", "-s", "bash", "-"]
    checked = subprocess.run(argv, input=script.encode(), capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout.decode() + script


@settings(parent=SLOW_TOOLS, max_examples=100)
@given(st.lists(hostile, min_size=1, max_size=8))
@example(["# shellcheck\n", "a\r\nb", "\nORCH_SCRIPT\n", "", "\n\n"])
def test_words_and_documents_reach_a_program_byte_for_byte(values: list[str]) -> None:
    """Plain, and with a secret in the middle: what bash hands on is what was meant."""
    lines: list[str] = ["set -eu"]
    expected: list[str] = []
    for value in values:
        for content in (Text.of(value), Text.of(value, Secret("TOKEN", "t"), value)):
            whole = content.reveal()
            lines += [
                f"printf '%s\\0' {bash_word(content, Variables())}",
                "{",
                *heredoc_lines(content, Variables()),
                "}",
            ]
            lines.append("printf '\\0'")
            expected += [whole, whole if whole.endswith("\n") and not _controls(whole) else whole + "\n"]
    ran = subprocess.run(
        ["bash"], input="\n".join(lines).encode(), env={"TOKEN": "t"}, capture_output=True, check=False
    )
    assert ran.stderr == b""
    assert ran.stdout.decode().split("\0")[:-1] == expected


def _controls(value: str) -> bool:
    return any(not char.isprintable() and char not in "\n\t" for char in value)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with an `ssh` that is this computer, a home for each host, and a `cloud` that records its arguments."""
    tools = tmp_path / "bin"
    tools.mkdir()
    ssh = '#!/bin/bash\nwhile [[ $1 == -* ]]; do shift 2; done\nexport HOME="$FARM/$1"; shift\nexec bash -c "$*"\n'
    (tools / "ssh").write_text(ssh)
    (tools / "cloud").write_text('#!/bin/bash\nprintf \'%s\\0\' "$@" >> "$FARM/cloud"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for rank in range(2):
        (tmp_path / f"me@h{rank}").mkdir()
    return tmp_path


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile, hostile, hostile)
@example('it\'s "$(touch canary)" `touch canary` \\ \n\r\x1b', "s3 'cret\n$(touch canary)", "tail\nORCH_SCRIPT\n")
def test_the_script_does_what_the_plan_shows(machine: Path, value: str, secret: str, comment: str) -> None:
    """Files arrive, scripts see every variable as intended, the provider gets its arguments, nothing else runs."""
    (machine / "project").mkdir(exist_ok=True)
    (machine / "project" / "file").write_text(value, newline="")
    quoted = "\n".join(f": '{line}'" for line in comment.replace("'", "").replace("\r", "").split("\n"))
    dump = f'#!/bin/bash\n{quoted}\nenv -0 > "$HOME/seen.$STAGE"\ntouch "$HOME/done.$STAGE"\n'
    one = sample_run(
        2,
        uid=Text.of("uid"),
        run_id=Text.of(value or "run"),
        trees=(
            TreeSpec(
                label="workdir",
                source=str(machine / "project"),
                destination="~/it's here/x",
                digest="d",
                files=1,
                total_bytes=1,
            ),
        ),
        mounts=(),
        setup=SetupSpec("digest", Text.of(dump.replace("$STAGE", "setup"))),
        job=JobSpec(id=1, script=Text.of(dump.replace("$STAGE", "job"))),
        env=(("VALUE", Text.of(value)), ("TOKEN", Text.of("<", Secret("TOKEN", "x"), ">"))),
        candidates=(candidate(2),),
    )
    script = preview_sh.render_sh(make_plan(one, Observed(now=0.0), FACTS))
    addresses = {
        "HOST_0_ADDRESS": "10.0.0.0",
        "UNKNOWN_2_ADDRESSES_IN_RANK_ORDER_KNOWN_AFTER_CREATE": "10.0.0.0\n10.0.0.1",
        EPOCH: "1",
    }
    environment = {
        "PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "FARM": str(machine), "TOKEN": secret or "s",
        "HOST_0_SSH": "me@h0", "HOST_1_SSH": "me@h1", **addresses,
    }  # fmt: skip
    ran = subprocess.run(
        ["bash"], input=script.encode(), env=environment, cwd=machine, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode() + script
    for rank in range(2):
        home = machine / f"me@h{rank}"
        assert (home / "it's here" / "x" / "file").read_bytes() == value.encode()
        for stage in ("setup", "job"):
            seen = dict(
                item.split("=", 1) for item in (home / f"seen.{stage}").read_bytes().decode().split("\0") if "=" in item
            )
            assert seen["VALUE"] == value
            assert seen["TOKEN"] == f"<{secret or 's'}>"
            assert seen["ORCH_RANK"] == str(rank)
            assert seen["ORCH_COORDINATOR"] == "10.0.0.0:29500"
    assert (machine / "cloud").read_bytes().split(b"\0")[:3] == [b"post", b"--name", b"demo-1"]
    assert not list(machine.rglob("canary"))


def test_script_stops_by_name_where_something_is_unknown(machine: Path) -> None:
    script = preview_sh.render_sh(make_plan(sample_run(2), Observed(now=0.0), FACTS))
    environment = {"PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "FARM": str(machine)}
    ran = subprocess.run(["bash"], input=script.encode(), env=environment, capture_output=True, text=False, check=False)
    assert ran.returncode != 0
    assert b"HF_TOKEN: set this secret" in ran.stderr
    assert not (machine / "cloud").exists(), "money is spent before the secret is required"
    environment["HF_TOKEN"] = "t"
    environment |= MADE_AT_LAUNCH
    ran = subprocess.run(["bash"], input=script.encode(), env=environment, capture_output=True, text=False, check=False)
    assert b"HOST_0_SSH: user@address of host 0, known after create" in ran.stderr


def test_a_secret_named_like_a_variable_of_bash_is_not_taken_from_it() -> None:
    for name in ("PATH", "UID", "RANDOM", "HOST_0_SSH", "bad name", "BASH_VERSION"):
        word = bash_word(Text.of(Secret(name, "v")), Variables())
        assert word.startswith('"${SECRET_'), word
    variables = Variables()
    words = {bash_word(Text.of(Secret(name, "v")), variables) for name in ("a b", "a-b", "a b")}
    assert len(words) == 2


class TwoRequests:
    """A provider whose create needs a value of an earlier answer."""

    def create_request(self, spec: SliceSpec) -> Request:
        image = Unknown("image's id")
        lookup = Request(
            service="c",
            method="GET",
            target="image",
            command=(Text.of("cloud"), Text.of("images")),
            gives=((image, "a['b'].Id"),),
        )
        made = (Text.of("cloud"), Text.of("make"), Text.of('{"image":"', image, '"}'))
        return Request(service="c", method="POST", target=spec.name, body={}, command=made, before=(lookup,))

    def end_request(self, name: str, candidate: Candidate) -> Request:
        del candidate
        return Request(service="c", method="DELETE", target=name)

    stop_request = start_request = end_request


def test_a_value_of_an_answer_is_passed_on_without_being_set(machine: Path) -> None:
    program = '#!/bin/bash\nprintf \'%s\\0\' "$@" >> "$FARM/cloud"\n[ "$1" != images ] || echo "ami-1"\n'
    (machine / "bin" / "cloud").write_text(program)
    one = sample_run(2, candidates=(candidate(2),), env=())
    script = preview_sh.render_sh(make_plan(one, Observed(now=0.0), Facts({"sample": TwoRequests()})))
    environment = {"PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "FARM": str(machine), "HF_TOKEN": "t"}
    environment |= MADE_AT_LAUNCH
    ran = subprocess.run(["bash"], input=script.encode(), env=environment, capture_output=True, check=False)
    assert b"HOST_0_SSH: user@address" in ran.stderr, "it came as far as the hosts"
    words = (machine / "cloud").read_bytes().decode().split("\0")
    assert words == ["images", "--query", "a['b'].Id", "--output", "text", "make", '{"image":"ami-1"}', ""]
