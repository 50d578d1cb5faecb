"""The text of `python -m trainer --help`: examples first, then every key with its default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainer.commands import COMMANDS, load_command, read_summary
from trainer.errors import ConfigError
from trainer.options import ALIASES, Key, find_nearest_name, list_keys
from trainer.presets import PRESETS

_EXAMPLES = """\
Train a decoder-only language model on this host and its peers.

Examples:
  python -m trainer model=tiny steps=120 data=python-stdlib
  python -m trainer model=10m data='/data/books:*.txt' checkpoint.uri=file:///var/tmp/run1/checkpoints
  python -m trainer model=100m device=cuda data=s3://bucket/text checkpoint.uri=s3://bucket/run1/checkpoints
  torchrun --nproc-per-node 8 -m trainer model=1b device=cuda batch=128
  torchrun --nproc-per-node 8 -m trainer model=8b mesh.fsdp=8 data=/data/shards
  python -m trainer model=1b engine=jax device=tpu batch=64 checkpoint.uri=gs://bucket/run1
"""

_AFTER = """\
Exit status: 0 done, 1 failure, 2 configuration, 3 data, 4 device, 6 another start has taken the run over, 10 storage,
75 stopped by SIGTERM or a closed terminal with a checkpoint saved (run it again to resume),
130 stopped from the keyboard, 143 stopped with nothing saved.
Environment: ORCH_RANK, ORCH_NUM_HOSTS, ORCH_COORDINATOR (or torchrun's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
ORCH_RUN_ID, ORCH_RUN_KEY (signs compiled programs in the bucket), ORCH_ATTEMPT, ORCH_EPOCH, ORCH_CHECKPOINT_URI,
ORCH_BUCKET_REGION (of that bucket), ORCH_RESUME_FROM, ORCH_HEARTBEAT_FILE, ORCH_LOCAL_RANKS_PER_MACHINE, ORCH_JOB_DIR
(stacks and profiles).
TRAINER_DEBUG=1 shows the traceback of an error.
Ranks meet at ORCH_COORDINATOR, under torchrun at the first free one of the 16 ports above MASTER_PORT; engines then use
further free ports: hosts must reach each other on all of them.
"""


def format_help() -> str:
    """Return the complete help text, ending with a newline."""
    short = "; ".join(f"{name}= is {key}=" for name, key in ALIASES.items())
    lines = [_EXAMPLES, f"Keys (key=default; {short}):", *_format_keys(list_keys(), has_model=True)]
    return "\n".join([*lines, "", *_commands(), "", _AFTER])


def format_topic_help(name: str) -> str:
    """Return the help of one key, of the keys of one section, and of the command of that name.

    Args:
        name: A key (`checkpoint.every`), what precedes the dot of several (`checkpoint`), or a command.

    Raises:
        ConfigError: There is none of this name; the message has the next command to type.
    """
    if name == "train":
        return format_help()
    table = list_keys()
    meant = (name, ALIASES.get(name))
    found = [key for key in table if key.name in meant or key.name.startswith(f"{name}.")]
    parts = [format_command_help(name)] if name in COMMANDS else []
    if found or name == "model":
        parts.append("\n".join(["Keys (key=default):", *_format_keys(found, has_model=name == "model")]) + "\n")
    if not parts:
        sections = {key.name.rpartition(".")[0]: None for key in table if "." in key.name}
        near = find_nearest_name(name, [*COMMANDS, *sections, *ALIASES, *(key.name for key in table)])
        hint = f"did you mean {near}? `python -m trainer help {near}`" if near else "`python -m trainer help` lists all"
        raise ConfigError(f"no key, section of keys or command is named {name!r}; {hint}")
    return "\n".join(parts)


def format_command_help(name: str) -> str:
    """Return the help of one command, ending with a newline."""
    command = load_command(name)
    more: str = getattr(command, "HELP", "")  # optional
    return f"python -m trainer {name}: {command.SUMMARY}\n" + (f"\n{more.strip()}\n" if more else "")


def _format_keys(table: Sequence[Key], *, has_model: bool) -> Iterator[str]:
    rows = [("model=NAME", f"preset: {', '.join(PRESETS)}")] if has_model else []
    for key in table:
        choice = f" ({'|'.join(key.kind)})" if isinstance(key.kind, tuple) else ""
        rows.append((f"{key.name}={key.default_text}", f"{key.doc.text}{choice}"))
    width = max(len(setting) for setting, _ in rows)
    yield from (f"  {setting:<{width}}  {text}" for setting, text in rows)


def _commands() -> Iterator[str]:
    width = max(map(len, COMMANDS))
    yield "Commands (python -m trainer help COMMAND; also help KEY, and help SECTION such as help mesh):"
    for name in COMMANDS:
        yield f"  {name:<{width}}  {read_summary(name)}"
