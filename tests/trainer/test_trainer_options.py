"""The command line of the trainer: typed, checked, with the nearest key for a wrong one; no traceback, status 2."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_ranks import REPOSITORY

from orchestrator.task.trainer_settings import find_setting_problems
from trainer.commands import COMMANDS, load_command
from trainer.config import Config
from trainer.environment import World, read_run, read_world, split_address
from trainer.errors import ConfigError
from trainer.help import format_command_help, format_topic_help
from trainer.options import PRESETS, Key, flatten_config, list_keys, parse_config
from trainer.shape.architecture import count_parameters


def texts(key: Key) -> st.SearchStrategy[str]:
    """Words that the key takes."""
    if isinstance(key.kind, tuple):
        return st.sampled_from(key.kind)
    if key.kind is bool:
        return st.sampled_from(["true", "false"])
    if key.kind is str:
        return st.text(max_size=20)
    least, most = key.doc.least, key.doc.most
    if key.kind is int:
        number = st.integers(int(least or 0), int(most) if most is not None else 10**6).map(str)
        return number | st.just("auto") if key.doc.auto else number
    return st.floats(least, most if most is not None else 1e6, allow_nan=False).map(repr)


# Others are accepted only together: sizes of the model, and axes that divide rows with the length of rows.
_TOGETHER = ("mesh.context", "mesh.tensor")
PLAIN = [key for key in list_keys() if not key.name.startswith("model.") and key.name not in _TOGETHER]


@given(st.data())
def test_every_accepted_value_is_read_back_the_same(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(PLAIN), unique_by=lambda key: key.name))
    words = {key.name: data.draw(texts(key)) for key in chosen}
    # The other settings of adapters need this one.
    config = parse_config(["lora.rank=0", *(f"{name}={text}" for name, text in words.items())])
    shown = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in flatten_config(config).items()
    }
    automatic = {key.name for key in list_keys() if key.doc.auto}
    again = [f"{n}={'auto' if n in automatic and t == '0' else t}" for n, t in shown.items()]
    assert parse_config(again) == config


@given(st.text())
def test_any_word_is_accepted_or_refused_with_a_message(word: str) -> None:
    try:
        parse_config([word])
    except ConfigError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("stps=3", "did you mean steps?"),
        ("lr=3", "did you mean optim.lr?"),
        ("model.dims=3", "did you mean model.dim?"),
        ("zzzz=1", "--help"),
        ("steps", "not a key=value word"),
        ("steps=many", "steps=many: not a whole number"),
        ("steps=1.5", "not a whole number"),
        ("steps=0", "must be at least 1"),
        ("optim.lr=nan", "not a number"),
        ("optim.lr=inf", "not a number"),
        ("optim.beta1=1", "must be at most"),
        ("compile=maybe", "not one of auto, true, false"),
        ("dtype=fp8", "not one of auto, fp32, bf16"),
        ("model=huge", "no such preset; there are tiny"),
        ("model=7b", "no such preset; did you mean mistral-7b?"),
        ("model=300", "did you mean 300m? there are tiny"),
        ("model=1B", "did you mean 1b?"),
        ("model=tinny", "did you mean tiny?"),
        ("dtype=fp16", "dtype=fp16: not one of auto, fp32, bf16; did you mean bf16?"),
        ("device=gpu", "not one of auto, cpu, cuda, tpu, neuron, xla; did you mean cuda?"),
        ("dtype=float32", "did you mean fp32?"),
        ("dtype=bfloat16", "did you mean bf16?"),
        ("--steps", "write steps=VALUE"),
        ("metrics.tensorbord=x", "did you mean metrics.tensorboard?"),
        ("mesh.fdsp=2", "did you mean mesh.fsdp?"),
        ("checkpoint.uri", "not a key=value word"),
        ("model.heads=3", "not a multiple of model.heads=3"),
        ("model.kv_heads=3", "not a multiple of model.kv_heads=3"),
        ("model.rope_scaling=yarn", "not one of none, llama3"),
        ("model.dim=12", "must be even"),
        ("model.ffn=0", "must be at least 1"),
        (f"steps={'9' * 400}", "steps=99999999...: has more than 64 bits"),
    ],
)
def test_each_mistake_has_its_own_message(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config([word])
    assert message in str(caught.value)


def test_preset_sets_many_keys_and_a_key_wins_in_any_position() -> None:
    assert parse_config(["model=10m"]).model.dim == 384
    assert parse_config(["model.dim=96", "model=10m", "steps=5", "steps=6"]).model.dim == 96
    assert parse_config(["steps=5", "steps=6"]).steps == 6
    for name in PRESETS:
        parse_config([f"model={name}"])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("llama3.2-1b", 1_235_814_400),
        ("qwen3-0.6b", 596_049_920),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("gemma2-2b", 2_614_341_888),
        ("gemma3-1b", 999_885_952),
    ],
)
def test_presets_of_families_have_the_size_of_the_published_weights(name: str, size: int) -> None:
    """As transformers 5.24 counts the parameters of the published configurations."""
    assert count_parameters(parse_config([f"model={name}"]).model) == size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.experts=1", "model.experts_per_token=2 is more than model.experts=1"),
        ("model.experts=4 model.expert_hidden=12", "model.expert_hidden=12 is not a multiple of 8"),
        ("model.experts=4 model.dim=20 model.heads=2 model.kv_heads=1", "model.dim=20 is not a multiple of 8"),
        ("model.experts=4 optim.kind=muon", "optim.kind=muon: a model with experts has only optim.kind=adamw"),
        ("model.experts=4 optim.kind=adafactor", "has only optim.kind=adamw"),
        ("model.experts_per_token=3", "model.experts_per_token without model.experts: the model would be dense"),
        ("model.normalize_experts=false", "model.normalize_experts without model.experts"),
        ("model.experts=4 lora.rank=2", "lora.targets=all: experts have no adapters"),
        ("model.experts=4 lora.rank=2 lora.targets=query,up", r"experts have no adapters \(up\)"),
    ],
)
def test_what_experts_do_not_have_is_refused_with_the_setting(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(words.split())
    given = dict(word.split("=") for word in words.split())
    assert list(find_setting_problems(tuple(given.items()), dict(given))), "and before anything is rented"


def test_settings_of_experts_that_say_what_is_so_anyway_are_allowed() -> None:
    words = {"model.experts_per_token": "2", "model.expert_hidden": "auto", "model.router_loss": "0.010"}
    assert not parse_config([f"{name}={value}" for name, value in words.items()]).model.experts
    assert not list(find_setting_problems(tuple(words.items()), dict(words)))


def test_adapters_of_attention_are_allowed_beside_experts() -> None:
    words = {"model.experts": "4", "lora.rank": "2", "lora.targets": "attention"}
    assert parse_config([f"{name}={value}" for name, value in words.items()]).model.experts == 4
    assert not list(find_setting_problems(tuple(words.items()), dict(words)))


def test_data_is_short_for_its_source() -> None:
    assert parse_config(["data=/x:y=z"]).data.source == "/x:y=z"


@given(batch=st.integers(1, 200), ranks=st.integers(1, 9), accumulate=st.integers(1, 5))
def test_the_global_batch_is_divided_or_the_nearest_ones_are_named(batch: int, ranks: int, accumulate: int) -> None:
    config = Config(batch=batch, accumulate=accumulate)
    try:
        rows = config.rows_per_micro_batch(ranks)
    except ConfigError as error:
        near = [int(word) for word in str(error).rpartition("batch=")[2].split(" or ")]
        assert batch % (ranks * accumulate) != 0
        assert all(number % (ranks * accumulate) == 0 and number > 0 for number in near)
    else:
        assert rows * ranks * accumulate == batch


def test_ranks_come_from_orch_or_torchrun_or_there_is_one() -> None:
    assert read_world({}) == World()
    ours = {"ORCH_RANK": "2", "ORCH_NUM_HOSTS": "4", "ORCH_COORDINATOR": "10.0.0.1:29500"}
    world = read_world({**ours, "ORCH_LOCAL_RANKS_PER_MACHINE": "4"})
    assert (world.rank, world.size, world.coordinator, world.launcher) == (2, 4, "10.0.0.1:29500", "orch")
    assert world.threads(0) == max(1, len(os.sched_getaffinity(0)) // 4)
    assert world.threads(7) == 7
    torchrun = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    world = read_world({**ours, **torchrun, "MASTER_ADDR": "h", "MASTER_PORT": "1"})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (9, 16, 1, 8)
    assert world.launcher == "torchrun"
    deepspeed = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2", "CROSS_RANK": "1"}
    world = read_world({**ours, **deepspeed, "MASTER_ADDR": "h", "MASTER_PORT": "1"})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (3, 4, 1, 2)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ORCH_RANK": "4", "ORCH_NUM_HOSTS": "4"}, "ORCH_RANK=4 is not below"),
        ({"ORCH_RANK": "x", "ORCH_NUM_HOSTS": "4"}, "ORCH_RANK='x'"),
        ({"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "0"}, "ORCH_NUM_HOSTS='0'"),
        ({"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "2"}, "ORCH_COORDINATOR=''"),
        ({"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": "h:0"}, "ORCH_COORDINATOR='h:0'"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR:MASTER_PORT"),
        ({"RANK": "1"}, "RANK=1 without WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 without RANK"),
    ],
)
def test_a_wrong_variable_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_world(environment)
    assert message in str(caught.value)


def test_run_variables_have_defaults_and_are_checked() -> None:
    assert read_run({}).run_id == "local"
    with pytest.raises(ConfigError, match="ORCH_ATTEMPT"):
        read_run({"ORCH_ATTEMPT": "0"})


def test_addresses_with_colons_are_split_at_the_last_one() -> None:
    assert split_address("X", "[::1]:29500") == ("::1", 29500)
    assert split_address("X", "host.example:1") == ("host.example", 1)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", *words],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_begins_with_examples_and_lists_every_key() -> None:
    result = command("--help")
    assert result.returncode == 0
    assert result.stdout.index("Examples:") < result.stdout.index("Keys (key=default;")
    for key in list_keys():
        assert f"  {key.name}=" in result.stdout
    examples = [line.strip() for line in result.stdout.splitlines() if line.startswith("  python -m trainer model=")]
    assert len(examples) >= 3
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout
    for example in examples:
        parse_config(shlex.split(example.removeprefix("python -m trainer ")))


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        ("checkpoint.every", {"checkpoint.every"}),
        ("tokenizer", {"data.tokenizer"}),
        ("mesh", {key.name for key in list_keys() if key.name.startswith("mesh.")}),
        ("model", {"model", *(key.name for key in list_keys() if key.name.startswith("model."))}),
        ("data", {key.name for key in list_keys() if key.name.startswith("data.")}),
    ],
)
def test_help_of_a_key_or_section_shows_only_its_keys(topic: str, settings: set[str]) -> None:
    result = command("help", topic)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    assert {row.strip().partition("=")[0] for row in rows} == settings


def test_help_of_a_command_is_the_commands_own_with_the_keys_of_that_name() -> None:
    assert command("help", "advise").stdout == command("advise", "--help").stdout
    assert command("help", "train").stdout == command("--help").stdout
    assert format_topic_help("eval").startswith(format_command_help("eval"))
    assert "\n  eval.every=" in format_topic_help("eval")


@pytest.mark.parametrize(
    ("topic", "nearest"), [("modle", "model"), ("lr", "optim.lr"), ("checkpoint.evry", "checkpoint.every")]
)
def test_help_of_an_unknown_name_gives_the_command_of_the_nearest_one(topic: str, nearest: str) -> None:
    result = command("help", topic)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert f"`python -m trainer help {nearest}`" in result.stderr


def test_a_wrong_key_ends_with_status_2_and_one_line() -> None:
    result = command("stps=3")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error[config]: unknown key 'stps'; did you mean steps?\n"
    assert command("devcies").stderr == (
        "error[config]: 'devcies' is neither a command nor key=value; did you mean devices?\n"
    )
    traced = command("stps=3", TRAINER_DEBUG="1")
    assert "Traceback" in traced.stderr


def test_a_batch_that_does_not_divide_is_refused_before_torch_is_loaded() -> None:
    ranks = {"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "3", "ORCH_COORDINATOR": "127.0.0.1:1"}
    result = command("batch=32", **ranks)
    assert result.returncode == 2
    assert "use batch=30 or 33" in result.stderr
    # Five processes of two devices each, two of which work on a row together: five shares.
    right, wrong = (
        command(f"batch={batch}", "mesh.tensor=2", "dist.join_timeout=1", **{**ranks, "ORCH_NUM_HOSTS": "5"})
        for batch in (5, 4)
    )
    assert "could not meet the others" in right.stderr
    assert "use batch=5" in wrong.stderr


@pytest.mark.parametrize("words", [["--help"], ["devices"], ["stps=3"], ["keys"], ["prepare", "--help"]])
def test_light_commands_load_neither_torch_nor_numpy(words: list[str]) -> None:
    code = (
        "import sys; from trainer.__main__ import main; main(sys.argv[1:]);"
        "sys.stderr.write('LOADED ' + ' '.join({'torch', 'jax', 'numpy', 'obstore', 'safetensors'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr.endswith("LOADED ")


def test_the_trainer_never_imports_the_orchestrator() -> None:
    for path in (REPOSITORY / "trainer").rglob("*.py"):
        assert "orchestrator" not in "".join(
            line for line in path.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))
        ), path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_has_a_one_line_summary(name: str) -> None:
    found = load_command(name)
    assert callable(found.run)
    assert found.SUMMARY.strip()
    assert "\n" not in found.SUMMARY
    assert "\n" in format_command_help(name)


def test_the_table_of_keys_rebuilds_the_defaults_and_every_preset() -> None:
    table = json.loads(command("keys").stdout)
    assert [key["name"] for key in table["keys"]] == [key.name for key in list_keys()]
    by_name = {key["name"]: key for key in table["keys"]}
    assert {name: key["default"] for name, key in by_name.items()} == flatten_config(Config())
    assert by_name["dtype"]["kind"] == "choice"
    assert by_name["dtype"]["choices"] == ["auto", "fp32", "bf16"]
    assert by_name["optim.beta1"] | {"doc": ""} == {
        "name": "optim.beta1", "kind": "float", "choices": None, "default": 0.9, "least": 0, "most": 0.999999,
        "auto": False, "doc": "",
    }  # fmt: skip
    assert by_name["model.vocab"]["auto"]
    assert table["aliases"] == {"data": "data.source", "tokenizer": "data.tokenizer"}
    for name, preset in table["presets"].items():
        assert parse_config([f"model={name}"]) == parse_config([f"{key}={text}" for key, text in preset.items()])


def test_closed_standard_output_is_no_crash() -> None:
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m trainer keys | head -c 1",
        shell=True, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
