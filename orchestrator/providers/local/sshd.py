"""The OpenSSH server: where it is, what it is told, and what to do when it is missing or refuses.

Options are those of sshd_config(5), OpenSSH 9.2 to 10.0. Nothing of /etc/ssh or of the user's own ~/.ssh is read.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import CloudError, UserError
from orchestrator.open_files import read_own_account
from orchestrator.providers.local.addresses import Place
from orchestrator.providers.local.layout import CLEAN_PATH, HostFolder
from orchestrator.providers.local.processes import MARK

VARIABLE = "ORCH_SSHD"
SYSTEM_PLACES = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd")
_INSTALL = (
    ("apt-get", "sudo apt-get install openssh-server"),
    ("dnf", "sudo dnf install openssh-server"),
    ("zypper", "sudo zypper install openssh-server"),
    ("pacman", "sudo pacman -S openssh"),
    ("apk", "sudo apk add openssh-server"),
)
_MORE_LIKELY = "Debian, Ubuntu: apt-get install openssh-server; Fedora: dnf install openssh-server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """An installed or unpacked server. helpers: `Option path` lines for its parts that lie beside it."""

    path: Path
    version: tuple[int, int]
    sftp_server: Path | None
    helpers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs the hosts, and so who logs in: sshd without root lets in nobody else."""

    name: str
    shell: str
    use_pam: bool


def find_sshd(environ: Mapping[str, str] | None = None, places: Sequence[str] = SYSTEM_PLACES) -> Sshd:
    """The server to use: $ORCH_SSHD, PATH, the usual places. Raises UserError with the package to install."""
    environ = os.environ if environ is None else environ
    path = _chosen(environ) or _installed(environ, places)
    return Sshd(
        path=path, version=_version(path), sftp_server=_beside(path, "sftp-server"), helpers=tuple(_helpers(path))
    )


def account() -> Account:
    """The account of this process. Raises UserError when sshd could not let it in."""
    try:
        entry = read_own_account()
    except KeyError:
        raise UserError(
            f"user number {os.getuid()} has no name on this computer",
            "sshd lets in only users listed in /etc/passwd",
            f"add one: echo 'orch:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/sh' >> /etc/passwd",
        ) from None
    shell = entry.pw_shell or "/bin/sh"
    if Path(shell).name in ("nologin", "false"):
        raise UserError(
            f"user {entry.pw_name} may not log in: its shell is {shell}",
            "every local host is entered over SSH as this user",
            f"run orch as another user, or: sudo chsh -s /bin/sh {entry.pw_name}",
        )
    return Account(entry.pw_name, _session_shell(), is_locked(entry.pw_name))


def is_locked(name: str, shadow: Path = Path("/etc/shadow")) -> bool:
    """Is the account's password locked (`!`)? sshd as root then refuses keys too, unless PAM decides.

    Source: platform_locked_account in OpenSSH; Ubuntu's desktop ships root so. Only root can read the file, and only
    then does sshd look at it.
    """
    try:
        lines = shadow.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, PermissionError):
        return False
    return any(line.startswith(f"{name}:!") for line in lines)


def config(sshd: Sshd, who: Account, folder: HostFolder, place: Place, session: Path, mark: str) -> str:
    """The whole sshd_config of one host."""
    environment = {
        "HOME": str(folder.home),
        "PATH": CLEAN_PATH,
        "SHELL": who.shell,
        "LANG": "C.UTF-8",
        MARK: mark,
        "ORCH_ADMIT": str(folder.admit),
    }
    # Ours, the one that orch-admit writes, and the user's own, as on any machine.
    keys_files = (
        _quoted(folder.authorized_keys, percent=True),
        _quoted(f"{_percent(folder.admitted)}/%u"),
        _quoted(folder.own_keys, percent=True),
    )
    lines = [
        f"ListenAddress {place.host}:{place.port}",
        f"HostKey {_quoted(folder.host_key)}",
        f"PidFile {_quoted(folder.sshd_pid)}",
        "AuthorizedKeysFile " + " ".join(keys_files),
        f"AllowUsers {who.name}",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "StrictModes no",  # the folder is ours, and mode 700; where it lies is the user's choice
        f"UsePAM {'yes' if who.use_pam else 'no'}",
        "UseDNS no",
        "PrintMotd no",
        "PrintLastLog no",
        "PermitUserRC no",
        "MaxSessions 1000",
        "MaxStartups 4096",
        "MaxAuthTries 20",
        "AcceptEnv LANG LC_*",
        "SetEnv " + " ".join(_quoted(f"{name}={value}") for name, value in environment.items()),
        # exec: no shell stays between, so that a program killed by a signal is reported as such.
        f"ForceCommand exec /bin/sh {shlex.quote(str(session))}",
        *sshd.helpers,
    ]
    if sshd.sftp_server is not None:
        lines.append(f"Subsystem sftp {shlex.quote(str(sshd.sftp_server))}")
    if sshd.version >= (9, 8):
        lines.append("PerSourcePenalties no")
    return "\n".join(lines) + "\n"


SESSION_SCRIPT = """#!/bin/sh
# Every session of a local host begins here: in the host's own home, as a login to a separate machine would.
cd "$HOME" || exit 255
if [ -z "${SSH_ORIGINAL_COMMAND+set}" ]; then
    unset OLDPWD
    exec "$SHELL" -l
fi
command=$SSH_ORIGINAL_COMMAND
unset SSH_ORIGINAL_COMMAND OLDPWD
exec "$SHELL" -c "$command"
"""


def check(sshd: Sshd, folder: HostFolder) -> None:
    """Let sshd read its own configuration; make the folder it misses. Raises CloudError with its words."""
    said = _test(sshd, folder)
    missing = re.search(r"Missing privilege separation directory: (\S+)", said or "")
    if missing:  # only as root; packages make it at boot, containers often do not
        Path(missing[1]).mkdir(mode=0o755, parents=True, exist_ok=True)
        said = _test(sshd, folder)
    if said is not None:
        raise CloudError(
            f"{sshd.path} does not accept the configuration of a local host",
            said,
            f"{shlex.join(_test_argv(sshd, folder))}   or another sshd: export {VARIABLE}=/path/to/sshd",
        )


def _test_argv(sshd: Sshd, folder: HostFolder) -> list[str]:
    return [str(sshd.path), "-t", "-f", str(folder.config)]


def _test(sshd: Sshd, folder: HostFolder) -> str | None:
    """None when all is well, else what sshd said."""
    done = subprocess.run(_test_argv(sshd, folder), capture_output=True, text=True, check=False, timeout=20)
    return None if done.returncode == 0 else (done.stderr.strip() or f"exit status {done.returncode}")


def _chosen(environ: Mapping[str, str]) -> Path | None:
    chosen = environ.get(VARIABLE, "")
    if not chosen:
        return None
    path = Path(chosen).expanduser().absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise UserError(f"{VARIABLE}={chosen} is not a program", "", f"unset {VARIABLE}   or point it to an sshd")
    return path


def _installed(environ: Mapping[str, str], places: Sequence[str]) -> Path:
    on_path = shutil.which("sshd", path=environ.get("PATH", ""))
    for place in (on_path, *places):
        if place and os.access(place, os.X_OK):
            return Path(place).absolute()  # sshd refuses to run under a relative name
    here = next((command for tool, command in _INSTALL if shutil.which(tool)), "")
    raise UserError(
        "no OpenSSH server (sshd) on this computer",
        "each local host is a real sshd",
        f"{here or _MORE_LIKELY}\nmacOS has it at /usr/sbin/sshd; an unpacked copy: export {VARIABLE}=/path/to/sshd",
    )


def _version(path: Path) -> tuple[int, int]:
    """From `OpenSSH_9.2p1`: printed by -V, and before 9.2 by the complaint that there is no -V."""
    done = subprocess.run([str(path), "-V"], capture_output=True, text=True, check=False, timeout=20)
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", done.stdout + done.stderr)
    if found is None:
        raise UserError(
            f"{path} does not look like an OpenSSH server",
            done.stderr.strip() or f"`{path} -V` ended with status {done.returncode}",
            f"point {VARIABLE} to another one",
        )
    return int(found[1]), int(found[2])


def _beside(path: Path, name: str) -> Path | None:
    """A part of OpenSSH, where packages and unpacked copies put it."""
    real = path.resolve().parent
    folders = [real, *(real.parent / part for part in ("lib/openssh", "libexec/openssh", "libexec", "lib/ssh"))]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def _helpers(path: Path) -> list[str]:
    """Since 9.8 sshd starts its sessions from a second program, since 10.0 from a third, at a compiled-in path."""
    found = (("SshdSessionPath", _beside(path, "sshd-session")), ("SshdAuthPath", _beside(path, "sshd-auth")))
    return [f"{option} {_quoted(part)}" for option, part in found if part is not None]


def _session_shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


def _quoted(value: Path | str, *, percent: bool = False) -> str:
    """One argument of sshd_config. percent: the option expands %h and the like."""
    text = str(value)
    if "\n" in text or '"' in text or "\\" in text:
        raise UserError(
            f"sshd cannot be given the path {text!r}",
            "it has a quote, a backslash or a line break in it",
            "keep the state of orch in a folder with a plain name",
        )
    return f'"{_percent(text) if percent else text}"'


def _percent(path: Path | str) -> str:
    """Return a path for an option that expands %h and the like."""
    return str(path).replace("%", "%%")
