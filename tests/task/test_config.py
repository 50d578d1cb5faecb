"""The configuration file and its variables."""

import pytest

from orchestrator.paths import config_path
from orchestrator.task.config import KEYS, KEYS_BY_NAME, Source, load_config, parse_config, unknown_key
from orchestrator.task.errors import ConfigError

TEXT = """# mine
[gcp]
project = "p"

[resources]
use_spot = true
[limits]
max_hours = 2

[aws]
subnets = ["a", "b"]
"""


def problem(text: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "c.toml", env or {})
    return caught.value.what


def test_values_are_read_with_their_line() -> None:
    config = parse_config(TEXT, "c.toml", {})
    assert (config.text("gcp.project"), config.flag("resources.use_spot"), config.texts("aws.subnets")) == (
        "p",
        True,
        ("a", "b"),
    )
    assert [str(v.origin) for v in config.explain("gcp.project")] == ["configuration c.toml:3"]
    assert [str(v.origin) for v in config.explain("limits.max_hours")] == ["configuration c.toml:8"]


def test_a_variable_wins_and_the_built_in_value_is_last() -> None:
    env = {"ORCH_GCP_VPC_NAME": "mine", "ORCH_AWS_SUBNETS": "x, y"}
    config = parse_config('[gcp]\nvpc_name = "theirs"\n', "c.toml", env)
    assert [(v.origin.source, v.value) for v in config.explain("gcp.vpc_name")] == [
        (Source.ENVIRONMENT, "mine"),
        (Source.CONFIG, "theirs"),
        (Source.BUILT_IN, "default"),
    ]
    assert config.texts("aws.subnets") == ("x", "y")
    assert config.text("gcp.project") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gpc]\nproject = 'x'\n", "c.toml:1: unknown section `gpc`, did you mean `[gcp]`?"),
        ("[gcp]\n\nprojekt = 'x'\n", "c.toml:3: unknown key `gcp.projekt`, did you mean `gcp.project`?"),
        ("project = 'x'\n", "c.toml:1: unknown section `project`"),
        ("[gcp]\nproject = 3\n", "c.toml:2: `gcp.project` must be text; here it is `3`"),
        ("[resources]\nuse_spot = 'yes'\n", "c.toml:2: `resources.use_spot` must be true or false; here it is `yes`"),
        ("[limits]\nmax_hours = -1\n", "c.toml:2: `limits.max_hours` must be a number above 0; here it is `-1`"),
        ("[recovery]\nmax_failures = true\n", "c.toml:2: `recovery.max_failures` must be a whole number"),
        ("[aws]\nsubnets = [1]\n", "c.toml:2: `aws.subnets` must be a list of texts; here it is `[1]`"),
        ("[gcp\n", "c.toml:1: is not valid TOML"),
        (f"[limits]\nmax_hours = {'9' * 400}\n", "c.toml:2: `limits.max_hours` must be a number above 0"),
        (f"[limits]\nmax_hours = {'9' * 5000}\n", "c.toml: is not valid TOML"),
        (f"[limits]\nmax_hours = 0x{'f' * 5000}\n", "c.toml:2: `limits.max_hours` must be a number above 0"),
    ],
)
def test_a_mistake_has_its_line_and_what_is_allowed(text: str, said: str) -> None:
    assert problem(text).startswith(said)


def test_a_wrong_variable_is_named() -> None:
    said = problem("", {"ORCH_RECOVERY_MAX_FAILURES": "many"})
    assert said == "ORCH_RECOVERY_MAX_FAILURES: must be a whole number, 0 or more; here it is `many`"


def test_an_unknown_key_cannot_be_explained() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("", "c.toml", {}).explain("checkpoint.buckets")
    assert "did you mean `checkpoint.bucket`?" in caught.value.what


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("aws.region", ""), ("aws.role_an", "aws.role_arn"), ("limits.use_spot", "resources.use_spot"),
        ("aw.profile", "aws.profile"),
    ],
)  # fmt: skip
def test_only_a_name_that_is_like_it_is_suggested(key: str, near: str) -> None:
    problem = unknown_key(key)
    assert problem.next_step == (f"orch config set {near} VALUE" if near else "orch config list shows all keys")


def test_where_the_file_is(tmp_path) -> None:
    assert config_path({"ORCH_CONFIG": "/x/y.toml", "HOME": "/h"}).as_posix() == "/x/y.toml"
    assert config_path({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}).as_posix() == "/c/orch/config.toml"
    assert config_path({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}).as_posix() == "/h/.config/orch/config.toml"
    assert load_config({"HOME": str(tmp_path)}).text("gcp.project") == ""
    file = tmp_path / ".config" / "orch" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(TEXT, encoding="utf-8")
    assert load_config({"HOME": str(tmp_path)}).text("gcp.project") == "p"
    with pytest.raises(ConfigError):
        load_config({"ORCH_CONFIG": str(tmp_path / "no.toml")})
    with pytest.raises(ConfigError):
        load_config({"ORCH_CONFIG": str(tmp_path)})


def test_every_key_can_be_set_both_ways() -> None:
    texts = {str: "x", int: "3", float: "2.5", bool: "true", list: "a,b"}
    written = {str: '"x"', int: "3", float: "2.5", bool: "true", list: '["a", "b"]'}
    for key in KEYS:
        by_variable = parse_config("", "c.toml", {key.variable: texts[key.kind]}).explain(key.full_name)[0].value
        by_file = parse_config(f"[{key.section}]\n{key.name} = {written[key.kind]}\n", "c.toml", {}).explain(
            key.full_name
        )
        assert by_variable == by_file[0].value
        assert by_file[0].origin.line == 2
    assert len(KEYS_BY_NAME) == len(KEYS)


def test_reading_the_configuration_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from orchestrator.task.config import load_config; load_config({'HOME': '/nonexistent'});"
        "bad = {'yaml', 'pydantic', 'paramiko', 'sqlalchemy', 'rich', 'jinja2', 'difflib'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
