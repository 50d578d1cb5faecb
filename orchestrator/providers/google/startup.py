"""The start-up script of every host, and the packing of the host keys that it unpacks. Pure.

The script holds nothing secret and is the same for all workers of a slice: each takes its own key by its worker id from
the metadata server. A key travels as the one line of base64 inside its OpenSSH file.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.render.templates import render_template

USER = "orch"
KEYS_PER_ENTRY = 512  # of 350 bytes; a metadata entry holds 256 KiB (Compute Engine documentation, 2025)
HOST_KEYS = "orch-host-keys"  # metadata entries: orch-host-keys-0, -1 ...
RESOURCE = "orch-resource"  # metadata entry: what to delete to end the slice, below v2/
_BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"
_END = "-----END OPENSSH PRIVATE KEY-----"


def render_startup(hosts_per_slice: int, hosts: int) -> str:
    return render_template(
        "google/startup.sh.j2", hosts_per_slice=hosts_per_slice, hosts=hosts, keys_per_entry=KEYS_PER_ENTRY
    )


def render_end() -> str:
    """Bash for a host that ends the slice the host belongs to.

    The hosts' service account needs tpu.nodes.delete and the scope cloud-platform.
    """
    return render_template("google/end.sh.j2", verb="delete")


def render_stop() -> str:
    """Bash for the host of a TPU of one host that stops it and keeps its disk.

    The host's service account needs tpu.nodes.stop and the scope cloud-platform.
    """
    return render_template("google/end.sh.j2", verb="stop")


def entries(hosts: int) -> tuple[str, ...]:
    """Names of the metadata entries that hold the keys of so many hosts."""
    return tuple(f"{HOST_KEYS}-{number}" for number in range(-(-hosts // KEYS_PER_ENTRY)))


def pack_keys(private: Sequence[str]) -> tuple[str, ...]:
    """One value per entry: `RANK:BASE64` joined by commas. Raises ValueError for what is no OpenSSH private key."""
    words = [f"{rank}:{_line(key)}" for rank, key in enumerate(private)]
    return tuple(",".join(words[start : start + KEYS_PER_ENTRY]) for start in range(0, len(words), KEYS_PER_ENTRY))


def unpack_keys(values: Sequence[str]) -> dict[int, str]:
    """What pack_keys packed: the text of each OpenSSH key file by rank."""
    found: dict[int, str] = {}
    for value in values:
        for word in value.split(","):
            rank, _, line = word.partition(":")
            rows = [line[start : start + 64] for start in range(0, len(line), 64)]
            found[int(rank)] = "\n".join([_BEGIN, *rows, _END]) + "\n"
    return found


def _line(key: str) -> str:
    first, *middle, last = key.strip().splitlines()
    if first != _BEGIN or last != _END or not middle:
        raise ValueError("a host key is not an OpenSSH private key")
    return "".join(middle)
