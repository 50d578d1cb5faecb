"""The reader: values with exact lines, strict where YAML surprises, and unbreakable."""

import string

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.computing_limit import ComputingLimitError, limit_computing
from orchestrator.task.errors import TaskError
from orchestrator.task.yaml_reader import LARGEST_BYTES, MOST_DOCUMENTS, read_documents


def refused(text: str) -> list[tuple[int | None, str]]:
    try:
        problems = [problem for one in read_documents(text, "t.yaml") for problem in one.unclear.values()]
    except TaskError as error:
        problems = [*error.problems]
    return [(problem.line, problem.what) for problem in problems]


def test_every_key_and_item_has_its_line() -> None:
    text = "a: 1\nb:\n  - x\n  - y:\n      z: 2\n\n# a comment\nc: {d: 3,\n    e: 4}\n"
    (document,) = read_documents(text, "t.yaml")
    assert document.data == {"a": 1, "b": ["x", {"y": {"z": 2}}], "c": {"d": 3, "e": 4}}
    expected = {
        ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1): 4, ("b", 1, "y"): 4, ("b", 1, "y", "z"): 5,
        ("c",): 8, ("c", "d"): 8, ("c", "e"): 9,
    }  # fmt: skip
    assert document.lines == expected
    assert document.line_of(("b", 1, "unknown", "deeper")) == 4


def test_lines_of_a_second_document_count_from_the_start_of_the_file() -> None:
    first, second = read_documents("name: a\n---\n\nrun: b\n", "t.yaml")
    assert (first.lines, second.lines) == ({("name",): 1}, {("run",): 4})


def test_a_key_written_twice_is_refused_with_both_lines() -> None:
    (document,) = read_documents("envs:\n  A: 1\n  B: 2\n  A: 3\n", "t.yaml")
    (problem,) = document.problems
    assert (problem.line, problem.what, problem.why) == (4, "`A` is written twice", "first in line 2")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nx: !!python/object/apply:os.system [id]\n", 2),
        ("x: !mine y\n", 1),
        ("x: !!binary aGk=\n", 1),
        ("x: !!omap [a: 1]\n", 1),
    ],
)
def test_tags_beyond_the_plain_ones_are_refused(text: str, line: int) -> None:
    ((found, what),) = refused(text)
    assert found == line
    assert "is not allowed" in what


@pytest.mark.parametrize(
    ("text", "number"),
    [("0123", "83"), ("-0777", "-511"), ("12:30", "750"), ("1:30:00", "5400"), ("1:30.5", "90.5")],
)
def test_numbers_yaml_reads_in_another_base_are_refused(text: str, number: str) -> None:
    assert refused(f"a: x\nb: {text}\n") == [(2, f"YAML reads {text} as the number {number}; quote it")]
    (document,) = read_documents(f"b: '{text}'\n", "t.yaml")
    assert document.data == {"b": text}


@pytest.mark.parametrize(
    ("text", "step"),
    [("a:\n  b: 1\n c: 2\n", "indent the keys"), ("- a\nb: 1\n", "before each item"), ("a: {b: 1\n", "close the {")],
)
def test_a_line_that_is_indented_wrongly_has_a_next_step(text: str, step: str) -> None:
    with pytest.raises(TaskError) as caught:
        read_documents(text, "t.yaml")
    assert step in caught.value.next_step


def test_a_secret_that_is_misread_is_not_shown() -> None:
    assert refused("secrets: {PIN: 0123}\n") == [(1, "YAML reads this value as another number; quote it")]


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert refused("a: &x\n  b: *x\n")[0][0] == 2


def test_aliases_and_merges_mean_what_yaml_says() -> None:
    text = "base: &b {a: 1, b: 2}\nother: &o {b: 3, c: 4}\nuse: {<<: [*b, *o], a: 9}\nagain: *b\n"
    (document,) = read_documents(text, "t.yaml")
    assert document.data == yaml.safe_load(text)
    assert document.lines[("again", "b")] == 1


def test_a_billion_laughs_are_stopped() -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 6)]
    ((_, what),) = refused("\n".join(lines))
    assert "values once aliases are expanded" in what


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 3000, "- " * 4000])
def test_deep_nesting_is_stopped(text: str) -> None:
    assert "nested more than" in refused(text)[0][1]


def test_a_huge_text_is_refused_before_it_is_read() -> None:
    assert "larger than" in refused("a" * (1 << 21))[0][1]


def test_keys_are_text_whatever_they_look_like() -> None:
    (document,) = read_documents("1: a\ntrue: b\nnull: c\non: d\n2024-01-01: e\n", "t.yaml")
    assert document.data == {"1": "a", "true": "b", "null": "c", "on": "d", "2024-01-01": "e"}


def test_dates_stay_text() -> None:
    (document,) = read_documents("a: 2024-01-01\nb: 2024-13-45\nc: 2001-12-14t21:59:43.10-05:00\n", "t.yaml")
    assert document.data == {"a": "2024-01-01", "b": "2024-13-45", "c": "2001-12-14t21:59:43.10-05:00"}


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "\t- x", "\x00", "a: 'x", "%YAML 3.0\n---\na: 1", "a: *x", "\ud800"]
)
def test_broken_yaml_is_one_clear_error(text: str) -> None:
    with pytest.raises(TaskError) as caught:
        read_documents(text, "t.yaml")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [("\t- x", (1, 1)), ("a:\n\t- x\n", (2, 1)), ("a:\n  b: 1\n\tc: 2\n", (3, 1)), ("a: 1\n  \tb: 2\n", (2, 3))],
)
def test_a_tab_in_the_indentation_is_named_as_such(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(TaskError) as caught:
        read_documents(text, "t.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == place
    assert (problem.what, problem.next_step) == (
        "a tab is used where YAML allows only spaces",
        "replace the tab by spaces",
    )


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        documents = read_documents(text, "t.yaml")
    except TaskError as error:
        assert error.lines()
    else:
        assert all(document.data is not None for document in documents)


@given(st.text(alphabet="ab:-[]{},&*!|>'\"# \n?<~0123456789._", max_size=60))
@settings(max_examples=400, deadline=None)
def test_no_yaml_punctuation_breaks_the_reader(text: str) -> None:
    try:
        read_documents(text, "t.yaml")
    except TaskError as error:
        assert error.problems


keys = st.text(alphabet=string.ascii_letters + "_", min_size=1, max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, width=32)
    | st.text(max_size=20)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(st.dictionaries(keys, values, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_what_pyyaml_writes_is_read_back(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data)
    (document,) = read_documents(text, "t.yaml")
    assert document.data == data
    line = text.splitlines()
    for path, number in document.lines.items():
        if len(path) == 1:
            assert str(path[0]) in line[number - 1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("---\n" * 4000, "documents"),
        ("--- {run: a}\n" * (MOST_DOCUMENTS + 1), "documents"),
        ("%YAML 1.1\n--- a\n...\n" * (MOST_DOCUMENTS + 1), "documents"),
        ("--- a\n" * (MOST_DOCUMENTS + 1) + "[", "documents"),  # counted before what is wrong later
        ("run: " + "[" * 200_000, "levels deep"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(200)) + "[", "levels deep"),
        (f"run: {'a' * LARGEST_BYTES}\n", "KiB"),
        (f"run: {'ä' * (LARGEST_BYTES // 2)}\n", "KiB"),
    ],
)
def test_documents_levels_and_bytes_are_counted_before_anything_is_made_of_them(text: str, what: str) -> None:
    with limit_computing(1.0):
        ((_, found),) = refused(text)
    assert what in found


def test_documents_and_bytes_up_to_the_limits_are_read() -> None:
    assert len(read_documents("--- {run: a}\n" * MOST_DOCUMENTS, "t.yaml")) == MOST_DOCUMENTS
    text = "run: |\n" + "".join(f"  ---\n  {number}\n" for number in range(1000))
    assert len(read_documents(text, "t.yaml")) == 1, "text that looks like documents is text"
    assert len(read_documents(f"run: {'a' * (LARGEST_BYTES - 6)}\n", "t.yaml")) == 1


def test_merges_count_each_key_that_they_copy() -> None:
    keys = ",".join(f"k{number}: 1" for number in range(2000))
    text = f"a: &a {{{keys}}}\nb: {{<<: [{','.join(['*a'] * 2000)}]}}\n"
    ((_, found),) = refused(text)
    assert "values once aliases are expanded" in found


def test_a_reader_ends_at_the_limit_of_its_processor_time() -> None:
    with pytest.raises(ComputingLimitError, match=r"more than 0\.01 s of a processor"), limit_computing(0.01):
        read_documents("".join(f"k{number}: [1, 2, 3]\n" for number in range(5000)), "t.yaml")
