"""How the clouds are reached: read from the environment in one place, and asked about by the providers alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import orchestrator
from orchestrator import cloud_access
from orchestrator.cloud_access import BucketAccess, CloudAccess, read_cloud_access

PRODUCT = Path(orchestrator.__file__).parent
# Providers and simulator know what stands in for a cloud; a rehearsal and `orch simulate` start the simulator.
KNOWING = ("providers/", "simulator/", "cloud_access.py", "engine/rehearsal/")
STARTING = ("cli/commands/before/simulate.py", "cli/commands/before/rehearse.py")
OF_THE_NETWORK = (  # its loopback, and no stand-in for a cloud
    "store/transport.py",  # a connection to the database on it needs no TLS
    "client/service_hosts.py",  # hosts on it are reached from the service's computer alone
)
VARIABLES = {
    value
    for name, value in vars(cloud_access).items()
    if name.isupper() and name.endswith(("_API", "_SERVER", "_TOKEN"))
} - {cloud_access.ANY_TOKEN}
PREDICATE = re.compile(r"loopback|emulator|pretend|is_?simulat|is_?fake|stand_?in_for_cloud", re.IGNORECASE)


def identifiers(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name):
                names |= set(name.split("."))
            case ast.ImportFrom(module=str(name)):
                names |= set(name.split("."))
            case _:
                pass
    return names


def violations(source: str) -> list[str]:
    """What a module outside the providers must not contain."""
    tree = ast.parse(source)
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return sorted(name for name in identifiers(tree) if PREDICATE.search(name)) + sorted(VARIABLES & constants)


def test_no_module_outside_the_providers_asks_whether_a_cloud_is_simulated() -> None:
    found = {
        name: wrong
        for path in sorted(PRODUCT.rglob("*.py"))
        if not (name := path.relative_to(PRODUCT).as_posix()).startswith(KNOWING)
        and name not in STARTING + OF_THE_NETWORK
        and (wrong := violations(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from orchestrator.providers.loopback import loopback_facts",
        "import orchestrator.providers.loopback",
        "if session.loopback: pass",
        'os.environ.get("AWS_ENDPOINT_URL")',
        'emulator = os.environ["STORAGE_EMULATOR_HOST"]',
        "def is_simulated(cloud): ...",
    ],
)
def test_the_boundary_check_finds_each_kind_of_question(source: str) -> None:
    assert violations(source)


def test_an_empty_environment_means_the_vendors_own_services() -> None:
    assert read_cloud_access({}) == CloudAccess()


def test_a_server_for_all_of_aws_is_also_that_of_its_buckets() -> None:
    access = read_cloud_access({"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_DEFAULT_REGION": "us-east-1"})
    assert access.aws_api == "http://127.0.0.1:1"
    assert access.s3 == BucketAccess(endpoint="http://127.0.0.1:1", region="us-east-1")
    assert access.s3.without_tls
    other = read_cloud_access({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b", "AWS_REGION": "r"})
    assert other.s3 == BucketAccess(endpoint="https://b", region="r")
    assert not other.s3.without_tls


def test_a_storage_server_takes_any_token_and_a_name_without_scheme() -> None:
    access = read_cloud_access({"STORAGE_EMULATOR_HOST": "127.0.0.1:9"})
    assert access.cloud_storage == BucketAccess(endpoint="http://127.0.0.1:9", token="anonymous")
    named = {"STORAGE_EMULATOR_HOST": "http://a/", "GOOGLE_BASE_URL": "https://b/", "GOOGLE_BEARER_TOKEN": "t"}
    assert read_cloud_access(named).cloud_storage == BucketAccess(endpoint="https://b", token="t")


def test_a_token_is_never_printed() -> None:
    assert "s3cret" not in repr(read_cloud_access({"GOOGLE_BEARER_TOKEN": "s3cret"}))
