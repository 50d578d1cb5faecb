"""The text of `python -m trainer --help`: examples first, then every key with its default."""

from __future__ import annotations

from trainer.options import keys
from trainer.presets import PRESETS

_EXAMPLES = """\
Train a byte-level language model on this host and its peers.

Examples:
  python -m trainer model=tiny steps=120 data=python-stdlib
  python -m trainer model=10m data='/data/books:*.txt' checkpoint.uri=file:///var/tmp/run1/checkpoints
  python -m trainer model=100m device=cuda dtype=bf16 data=s3://bucket/text checkpoint.uri=s3://bucket/run1/checkpoints
  torchrun --nproc-per-node 8 -m trainer model=1b device=cuda dtype=bf16 batch=256
  python -m trainer devices        what accelerators this machine has, as JSON; touches none of them
  python -m trainer check          does the chosen device work? (takes device= and dtype=)
"""

_AFTER = """\
Exit status: 0 done, 1 failure, 2 configuration, 3 data, 4 device, 10 storage,
75 stopped by SIGTERM with a checkpoint saved (run it again to go on), 143 stopped with nothing saved.
Environment: ORCH_RANK, ORCH_NUM_HOSTS, ORCH_COORDINATOR (or torchrun's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
ORCH_RUN_ID, ORCH_ATTEMPT, ORCH_CHECKPOINT_URI, ORCH_RESUME_FROM, ORCH_HEARTBEAT_FILE,
ORCH_LOCAL_RANKS_PER_MACHINE. TRAINER_DEBUG=1 shows the trace of an error.
"""


def text() -> str:
    """The whole help text, ending with a newline."""
    table = keys()
    width = max(len(f"{key.name}={key.default_text}") for key in table)
    lines = [_EXAMPLES, "Keys (key=default):", f"  {'model=NAME':<{width}}  preset: {', '.join(PRESETS)}"]
    for key in table:
        choice = f" ({'|'.join(key.kind)})" if isinstance(key.kind, tuple) else ""
        lines.append(f"  {f'{key.name}={key.default_text}':<{width}}  {key.doc.text}{choice}")
    return "\n".join([*lines, "", _AFTER])
