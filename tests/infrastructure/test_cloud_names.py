"""A cloud is named only in its driver, the catalogue, the storage schemes and the simulated clouds (docs/design.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.drivers import list_clouds, list_drivers, load_part

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "orchestrator"

# Folders and files whose subject is the clouds; a name with a slash at its end is a folder.
PLACES = {
    "providers/aws/": "a driver",
    "providers/google/": "a driver",
    "catalog/": "tables of machines, chips, prices and buckets, and their loaders",
    "cloud_identities/": "as whom a cloud is called, by its driver and by the schemes of its buckets",
    "storage/": "the schemes of buckets",
    "cloud_access.py": "the only reader of the variables that lead to the clouds' services",
    "simulator/": "simulated clouds",
}

# Words in other files, each with the reason why it is there.
_DEVICE = "what the trainer and its software call the device"
ALLOWED: dict[str, dict[str, str]] = {
    "drivers.py": {"gcp": "the table of drivers", "aws": "likewise", "google": "likewise"},
    "task/stacks.py": {"tpu": _DEVICE, "aws": "whose software the Neuron images are, as the preview says"},
    "task/model.py": {"tpu": _DEVICE},
    "task/rules.py": {
        "amazon": "a variable of the templates that names a folder of the image",
        "tpu": "a variable that turns a check of the templates off",
    },
    "documents/topology.py": {"tpu": _DEVICE},
    "remote/chips.py": {"tpu": "the tool on the hosts that reports of its chips"},
    "render/packages.py": {"tpu": _DEVICE},
    "render/scripts.py": {"tpu": _DEVICE},
    "acceptance/answers.py": {
        "ec2": "a form of answers, as tests/first_contact names it",
        "tpu": "likewise",
    },
    "acceptance/masking.py": {"ec2": "the domain of the machines' own names, which are masked"},
    "cli/commands/run/train.py": {"tpu": _DEVICE},
    "cli/parameters/shared.py": {"tpu": "the only device for which a step can be compiled ahead"},
    "engine/training/compilation.py": {
        "tpu": "its compiler: no other device can be compiled for ahead",
        "tpus": "likewise",
    },
    "cli/commands/run/launch.py": {"tpu": "an example in the help"},
    "task/likely_secrets.py": {"google": "a variable of the user's that names a file, and is no secret"},
    "providers/caller.py": {"google": "the address of a public service that reports who asks"},
}

WORDS = ("aws", "ec2", "gcp", "google", "gce", "tpu", "tpus", "amazon", "trn1", "trn2")
PHRASES = ("compute engine", "elastic ip")  # "capacity block" and "queued resource" are markets (docs/glossary.md)
_IN_TEXT = re.compile(rf"(?<![a-z0-9])(?:{'|'.join((*WORDS, *PHRASES))})(?![a-z0-9])", re.IGNORECASE)
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")


def words_of(text: str) -> Iterator[str]:
    """Yield the names of clouds in a text."""
    yield from (found.lower() for found in _IN_TEXT.findall(text))


def words_of_name(name: str) -> Iterator[str]:
    """Yield the names of clouds in an identifier, such as `read_aws_settings` or `Ec2Instance`."""
    yield from (part.lower() for part in _PART.findall(name) if part.lower() in WORDS)


def list_words(source: str) -> list[tuple[int, str]]:
    """Return line and word of each name of a cloud in identifiers and texts; docstrings and examples may explain."""
    tree = ast.parse(source)
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                skipped.add(statement.value)  # a docstring, or the text below a constant
        if isinstance(node, ast.keyword) and node.arg == "examples":
            skipped.update(ast.walk(node.value))
    return sorted((line, word) for node in ast.walk(tree) if node not in skipped for line, word in _words_of_node(node))


def _words_of_node(node: ast.AST) -> Iterator[tuple[int, str]]:
    line = getattr(node, "lineno", 0)
    match node:
        case ast.Constant(value=str(text)):
            yield from ((line, word) for word in words_of(text))
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield from ((line, word) for word in words_of_name(name))
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield from ((line, word) for word in words_of_name(name))
        case ast.Import() | ast.ImportFrom():
            names = [alias.name for alias in node.names]
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            yield from (
                (line, word) for one in (module, *names) for part in one.split(".") for word in words_of_name(part)
            )


def list_other_files() -> list[Path]:
    """Return the files of the product that are no place for clouds."""
    return [
        file
        for file in sorted(PRODUCT.rglob("*.py"))
        if not file.relative_to(PRODUCT).as_posix().startswith(tuple(PLACES))
    ]


def test_no_cloud_is_named_outside_of_its_places() -> None:
    named = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for file in list_other_files()
        for line, word in list_words(file.read_text(encoding="utf-8"))
        if word not in ALLOWED.get(file.relative_to(PRODUCT).as_posix(), {})
    ]
    assert not named, "\n".join(named)


def test_every_exception_has_a_reason_and_is_needed() -> None:
    for name, words in ALLOWED.items():
        named = {word for _, word in list_words((PRODUCT / name).read_text(encoding="utf-8"))}
        assert set(words) <= named, f"{name} does not name {', '.join(sorted(set(words) - named))} any more"
        assert all(words.values())
    assert all((PRODUCT / place).exists() for place in PLACES)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def read_aws_settings() -> None: ...", ["aws"]),
        ("class Ec2Instance: ...", ["ec2"]),
        ("class TpuSlice: ...", ["tpu"]),
        ("kind = 'on Compute Engine'", ["compute engine"]),
        ("place = f'{a} of gcp/{b}'", ["gcp"]),
        ("import orchestrator.providers.google.planner", ["google"]),
        ("from orchestrator.catalog import tpu", ["tpu"]),
        ("x = of(tpu=1).gcp", ["gcp", "tpu"]),
        ("match_output = 'awsome gcps'", []),
        ('def f() -> None:\n    """Return what EC2 has."""\n    # and Google\n', []),
        ("@command(examples=[('orch launch --infra gcp', '')])\ndef f() -> None: ...", []),
    ],
)
def test_names_are_found_in_code_and_not_in_explanations(source: str, words: list[str]) -> None:
    assert sorted(word for _, word in list_words(source)) == words


def count_driver_lines() -> dict[str, int]:
    """Return the lines of Python in the folder of each driver."""
    return {
        driver.name: sum(
            len(file.read_text(encoding="utf-8").splitlines())
            for file in Path(str(load_part(driver.name, "driver").__file__)).parent.rglob("*.py")
        )
        for driver in list_drivers()
    }


def test_every_cloud_is_a_folder(record_property: Callable[[str, object], None]) -> None:
    """Report the size of each driver; `pytest -s` prints it."""
    counts = count_driver_lines()
    print("lines of each driver:", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    record_property("driver_lines", counts)
    for cloud in list_clouds():
        assert counts[cloud.name] > 1000
        folder = Path(str(load_part(cloud.name, "driver").__file__)).parent
        assert f"providers/{folder.name}/" in PLACES, "each driver's folder is listed above"
        assert cloud.name in WORDS, "a cloud's name is searched for"
