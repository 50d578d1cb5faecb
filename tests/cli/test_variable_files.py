"""--env-file and --secret-file read what python-dotenv reads, and never show what they cannot read."""

import os
import threading
from pathlib import Path

import dotenv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.parameters import variable_files
from orchestrator.cli.parameters.variable_files import read_variable_files
from orchestrator.errors import NotFoundError, UserError

FILES = [
    "A=1\nB = two words \nexport C='single $x'\n",
    "# comment\n\nA=a#b\nB=a # comment\nC='a # b' # comment\nD=\nE\n",
    'A="line\\nnext \\"quoted\\" \\\\ \\t"\nB=\'it\\\'s\'\n',
    'A="several\nlines"\nB=2',
    "A=one\nB=${A}-${SHELL_ONE}-${MISSING}-${MISSING:-default}\n",
    "A=1\r\nB='x'\r\n",
    "A=1\nA=2\n",
    "  A=1\n\tB=2\n",
    "A=a=b=c\nURL=https://x/y?z=1#part\n",
]


@pytest.mark.parametrize("text", FILES)
def test_it_reads_what_python_dotenv_reads(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL_ONE", "shell")
    path = tmp_path / "env"
    path.write_bytes(text.encode())
    assert dict(read_variable_files((str(path),), {"SHELL_ONE": "shell"})) == dotenv.dotenv_values(path)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"\xef\xbb\xbfA=1\n")
    assert dict(read_variable_files((str(tmp_path / "env"),), {})) == {"A": "1"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("A=1\nno line\nB=2\nneither this\n", ":2: this line is not NAME=VALUE, nor is line 4"),
        ("no a\nno b\nno c", ":1: this line is not NAME=VALUE, nor are lines 2, 3"),
        ("A=1\nB=a\0b\n", ":2: this line has a NUL"),
    ],
)
def test_every_line_that_is_wrong_is_named(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(text)
    with pytest.raises(UserError) as caught:
        read_variable_files((str(tmp_path / "env"),), {})
    assert f"{tmp_path}/env{where}" in caught.value.what


def test_a_pipe_is_read_and_one_without_a_writer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setattr(variable_files, "PIPE_SECONDS", 0.2)
    with pytest.raises(UserError, match="nothing wrote to it"):
        read_variable_files((str(path),), {})
    monkeypatch.setattr(variable_files, "PIPE_SECONDS", 10.0)
    writer = threading.Thread(target=path.write_text, args=("A=1\nB=2\n",))
    writer.start()
    assert dict(read_variable_files((str(path),), {})) == {"A": "1", "B": "2"}
    writer.join()


LINE = st.tuples(
    st.sampled_from(["A", "B_2", "export C"]),
    st.sampled_from(["=", " = ", "= "]),
    st.one_of(
        st.text("ab c=:/.,-", max_size=8).map(str.strip),
        st.text("ab c#=$", max_size=8).map(lambda text: f"'{text}'"),
        st.text("ab c#=", max_size=8).map(lambda text: f'"{text}"'),
    ),
)


@given(st.lists(LINE, max_size=4))
def test_it_agrees_with_python_dotenv_on_made_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("f") / "env"
    path.write_text("".join(f"{''.join(parts)}\n" for parts in lines))
    assert dict(read_variable_files((str(path),), {})) == dotenv.dotenv_values(path)


@pytest.mark.parametrize("text", ["A=1\nPa55word\u00e9 x\n", "A='Pa55word\n", "A='Pa55word' x\n", "1A=Pa55word\n"])
def test_a_line_that_cannot_be_read_has_its_number_and_is_not_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(text)
    with pytest.raises(UserError) as caught:
        read_variable_files((str(tmp_path / "env"),), {})
    assert "Pa55word" not in str(caught.value.lines())
    assert f"env:{text[: text.index('Pa55word')].count(chr(10)) + 1}: " in caught.value.what


def test_of_several_files_the_last_one_wins_and_sees_the_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("A=1\nB=1\n")
    (tmp_path / "b").write_text("B=${A}2\n")
    found = read_variable_files((str(tmp_path / "a"), str(tmp_path / "b")), {})
    assert dict(found) == {"A": "1", "B": "12"}
    with pytest.raises(NotFoundError):
        read_variable_files((str(tmp_path / "none"),), {})
