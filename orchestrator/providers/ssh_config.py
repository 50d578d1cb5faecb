"""How a person's own SSH reaches a machine: `ssh -G` reads their configuration (~/.ssh/config), orch reads its answer.

Of the answer are used HostName, Port, User, IdentityFile, CertificateFile, IdentitiesOnly, IdentityAgent, ProxyJump,
ProxyCommand, the known_hosts files, HostKeyAlias, StrictHostKeyChecking and RevokedHostKeys (ssh_config(5)). Nothing is
forwarded.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, OwnSsh
from orchestrator.open_files import read_own_account
from orchestrator.providers import ssh_config_stamp
from orchestrator.providers.hosts.machines import OwnHost, parse_address

_USUAL_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss", "id_dsa")
_FIRST = ("id_ed25519", "id_ecdsa", "id_rsa")
_SECONDS = 20.0  # `Match exec` runs the person's own programs
_MOST_HOPS = 8
_PLAIN = re.compile(
    r"[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]*"
)  # what no shell of a ProxyCommand can take for more than a name
_PLAIN_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")

Settings = Mapping[str, Sequence[str]]
"""The answer of `ssh -G`: values by lower-case keyword."""


def own_address(host: OwnHost, *, rank: int, name: str, known_hosts: Path) -> HostAddress:
    """Return the address of a person's own machine. What the task does not say is what their own `ssh` would use.

    Args:
        host: The machine as the task names it.
        rank: Its rank.
        name: The slice's; keys are kept under names made from it.
        known_hosts: Where keys are kept that orch accepted.

    Raises:
        UserError: A name is not one, or the person's configuration cannot be read.
    """
    more = (_named_key(host),) if host.key else ()
    return _Way(name=name, known_hosts=known_hosts, more_keys=more).address(host, rank, f"{name}-{rank}", hops=0)


def add_jump_hosts(address: HostAddress, hops: str, *, name: str) -> HostAddress:
    """Return the same host behind a person's own jump hosts, a comma list as `ssh -J` takes it.

    `name` is that of the slice.

    Raises:
        UserError: A jump host cannot be parsed.
    """
    way = _Way(name=name, known_hosts=address.known_hosts, more_keys=(address.identity_file,))
    return replace(address, jump=way.last_hop(_split_hops(hops), hops=1))


def config_stamp() -> str:
    """Return a text that changes when the person's SSH configuration may have changed."""
    return ssh_config_stamp.config_stamp(_user_config())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What the machines and jump hosts of one slice have in common.

    more_keys: Keys that are tried at the jump hosts after those that are configured for them.
    """

    name: str
    known_hosts: Path
    more_keys: tuple[Path, ...]

    def address(self, host: OwnHost, rank: int, alias: str, hops: int) -> HostAddress:
        _refuse_unplain(host)
        found = _ask_ssh(host.host, host.user, host.port, str(_user_config()), config_stamp())
        user, name, port = _one(found, "user"), _one(found, "hostname"), int(_one(found, "port"))
        known_as = _one(found, "hostkeyalias") or host.host
        tokens = {"h": name, "n": host.host, "p": str(port), "r": user, "k": known_as}
        own = _own_ssh(host, found, tokens, self.more_keys if hops else ())
        written = _split_hops(host.jump or _one(found, "proxyjump"))
        command = "" if written else _one(found, "proxycommand").removeprefix("none")
        return HostAddress(
            rank=rank,
            alias=alias,
            host=name,
            port=port,
            user=user,
            identity_file=own.keys[0] if own.keys else Path("none"),
            known_hosts=self.known_hosts,
            internal_ip=host.internal_ip or name,
            jump=self.last_hop(written, hops + 1),
            proxy=("sh", "-c", "exec " + _expand(command, tokens).replace("%", "%%")) if command else (),
            own=own,
        )

    def last_hop(self, written: Sequence[str], hops: int) -> HostAddress | None:
        """Return the last hop, reached through those before it. Equal hops are equal values: one connection."""
        if not written:
            return None
        if hops > _MOST_HOPS:
            raise UserError(
                f"more than {_MOST_HOPS} jump hosts lead to one another",
                "ProxyJump in ~/.ssh/config may lead in a circle",
                f"ssh -G {quote(written[-1])} | grep proxyjump",
            )
        hop = replace(parse_address(written[-1]), jump=",".join(written[:-1]))
        plain = re.sub(r"[^a-z0-9]+", "-", f"{hop.host}-{hop.port or 22}".lower())
        return self.address(hop, 0, f"{self.name}-jump-{plain}", hops)


def _own_ssh(host: OwnHost, found: Settings, tokens: Mapping[str, str], more: Sequence[Path]) -> OwnSsh:
    written = [_expand_path(path, tokens) for path in found.get("identityfile", ())]
    usual = {Path(_home(f"~/.ssh/{key}")) for key in _USUAL_KEYS}
    named = bool(host.key) or not usual.issuperset(written)
    if host.key:
        keys = [_named_key(host)]
    elif named:
        keys = [path for path in written if path.exists() or path.with_name(path.name + ".pub").exists()]
    else:
        keys = [path for key in _FIRST if os.access(path := Path(_home(f"~/.ssh/{key}")), os.R_OK)]
    known = [*_split_paths(_one(found, "userknownhostsfile")), *_split_paths(_one(found, "globalknownhostsfile"))]
    return OwnSsh(
        keys=tuple(dict.fromkeys((*keys, *more))),
        certificates=tuple(_expand_path(path, tokens) for path in found.get("certificatefile", ())),
        named=named,
        only=bool(host.key) or _one(found, "identitiesonly") == "yes",
        agent=_expand(_one(found, "identityagent"), tokens),
        known_hosts=tuple(_expand_path(path, tokens) for path in known if path != "none"),
        known_as=(_one(found, "hostkeyalias") or _name_in_known_hosts(tokens["h"], tokens["p"])).lower(),
        revoked=tuple(_revoked(_one(found, "revokedhostkeys"), tokens)),
        strict=_one(found, "stricthostkeychecking") in ("true", "yes"),
    )


def _name_in_known_hosts(name: str, port: str) -> str:
    return name if port == "22" else f"[{name}]:{port}"


def _split_paths(written: str) -> list[str]:
    """Return the paths of a list, which `ssh -G` writes without quotes: a path that exists may contain blanks."""
    words, paths = written.split(" "), list[str]()
    while words:
        whole = (count for count in range(len(words), 1, -1) if Path(_home(" ".join(words[:count]))).exists())
        count = next(whole, 1)
        paths.append(" ".join(words[:count]))
        words = words[count:]
    return [path for path in paths if path]


def _revoked(written: str, tokens: Mapping[str, str]) -> list[Path]:
    return [_expand_path(written, tokens)] if written not in ("", "none") else []


def _split_hops(hops: str) -> list[str]:
    return [hop.strip().removeprefix("ssh://") for hop in hops.split(",") if hop.strip() not in ("", "none")]


@cache
def _ask_ssh(host: str, user: str, port: int, config: str, _stamp: str) -> Settings:
    """Return what `ssh -G` answers. Without an ssh program nothing is configured."""
    options = [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    home, real_home = _home("~"), read_own_account().pw_dir
    if home != real_home:  # ssh itself does not look at HOME
        options += ["-F", config if Path(config).exists() else "none"]
    try:
        done = subprocess.run(
            ["ssh", "-G", *options, host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return {"hostname": [host], "user": [user or getpass.getuser()], "port": [str(port or 22)]}
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"ssh did not read its configuration for {host} within {_SECONDS:.0f} s",
            "`Match exec` may run a program that hangs",
            f"ssh -G {host}",
        ) from error
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if line.strip()), f"exit {done.returncode}")
        raise UserError(f"ssh cannot read its configuration for {host}", why, f"ssh -G {host}   shows the same")
    found: dict[str, list[str]] = defaultdict(list)
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        found[keyword].append(value.replace(f"{real_home}/.ssh/", f"{home}/.ssh/"))
    return dict(found)


def _refuse_unplain(host: OwnHost) -> None:
    if not _PLAIN.fullmatch(host.host) or (host.user and not _PLAIN_USER.fullmatch(host.user)):
        raise UserError(
            f"'{host.user}@{host.host}'".replace("'@", "'") + " is not the address of a host",
            "a name has letters, digits, dots, hyphens and underscores",
            "hosts: {addresses: [user@first, user@second]}   in the task file",
        )


def _named_key(host: OwnHost) -> Path:
    path = Path(_home(host.key)).absolute()
    if not os.access(path, os.R_OK):
        raise UserError(f"cannot read the SSH key {host.key} of host {host.host}", "", f"ls -l {quote(str(path))}")
    return path


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    """Return a value with ~ and the tokens of ssh_config(5) filled in. Unknown tokens stay, and are then no path."""
    local = {
        "%": "%",
        "d": _home("~"),
        "u": read_own_account().pw_name,
        "i": str(os.getuid()),
        "l": socket.gethostname(),
    }
    local["L"] = local["l"].partition(".")[0]
    return re.sub(r"%(.)", lambda token: {**local, **tokens}.get(token[1], token[0]), _home(text))


def _expand_path(text: str, tokens: Mapping[str, str]) -> Path:
    """Return a path as ssh finds it: with variables of the environment, too, which `ssh -G` leaves in some."""
    written = re.sub(r"\$\{(\w+)\}", lambda name: os.environ.get(name[1], name[0]), text)
    return Path(_expand(written, tokens))


def _home(text: str) -> str:
    return str(Path.home()) + text[1:] if text == "~" or text.startswith("~/") else text


def _user_config() -> Path:
    return Path(_home("~/.ssh/config"))


def _one(found: Settings, keyword: str) -> str:
    return next(iter(found.get(keyword, ())), "")
