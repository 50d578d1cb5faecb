"""Real OpenSSH servers on loopback addresses, for tests: start N, kill, freeze, cut off, or swap a host key.

    with sshd_farm(tmp_path, 4) as farm:
        Fleet(farm.addresses).run("hostname")
        farm.hosts[2].kill()

Each host has its own address, port, home folder and host key. Everything that runs on a host carries
ORCH_TEST_HOST in its environment and is ended, by process id, when the farm closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import random
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from support.host_folders import host_folder

from orchestrator.hosts import HostAddress
from orchestrator.remote.keys import make_host_key, write_known_hosts

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@contextlib.contextmanager
def sshd_farm(root: Path, count: int, *, extra: str = "", one_port: bool = False) -> Iterator[Farm]:
    """`count` servers below the folder `root`; `extra` is added to every sshd_config.

    one_port: all listen on the same port number, for tools that accept only one.
    """
    identity, public = new_identity(root)
    subnet = free_subnet()
    hosts: list[Sshd] = []
    port = _free_port(f"{subnet}.1") if one_port else None
    farm = Farm(root, identity, hosts)
    try:
        for rank in range(count):
            ip = f"{subnet}.{rank + 1}" if rank < 250 else f"127.255.{rank // 250}.{rank % 250 + 1}"
            hosts.append(Sshd(rank, root / f"host{rank}", ip, identity, public, extra, port))
            hosts[-1].start(wait=False)
        for host in hosts:
            host.await_listening()
        write_known_hosts(root / "known_hosts", farm.addresses)
        yield farm
    finally:
        farm.close()


def new_identity(root: Path) -> tuple[Path, str]:
    """Make the folder of a farm and the key that its servers let in; return its file and its public half."""
    root.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's privilege separation wants it and does not make it
    private, public = make_host_key()
    identity = root / "id_ed25519"
    _secret(identity, private)
    return identity, public


def free_subnet() -> str:
    """Return three numbers of loopback addresses that hardly any other test uses now."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"


@dataclass
class Farm:
    root: Path
    identity: Path
    hosts: list[Sshd]
    _extras: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def addresses(self) -> tuple[HostAddress, ...]:
        return tuple(host.address for host in self.hosts)

    def cut_off_later(self, rank: int) -> Relay:
        """A relay before host `rank`: use its `address`, then `vanish` it as if the network cable was pulled."""
        return self._extras.enter_context(Relay(self.hosts[rank].address))

    def close(self) -> None:
        self._extras.close()
        for host in self.hosts:
            host.stop()


class Sshd:
    """One server; `address` is what orchestrator.remote needs to reach it."""

    def __init__(
        self, rank: int, folder: Path, ip: str, identity: Path, public: str, extra: str = "", port: int | None = None
    ) -> None:
        self.folder, self.ip, self.extra = folder, ip, extra
        self.home = folder / "home"
        self.mark = uuid.uuid4().hex
        self.home.mkdir(parents=True)
        (folder / "authorized_keys").write_text(public + "\n")
        self.port = _free_port(ip) if port is None else port
        self.process: subprocess.Popen[bytes] | None = None
        key = self._new_host_key()
        self.address = HostAddress(
            rank=rank,
            alias=f"test-{self.mark[:12]}-{rank}",
            host=ip,
            port=self.port,
            user=getpass.getuser(),
            identity_file=identity,
            known_hosts=folder.parent / "known_hosts",
            internal_ip=ip,
            host_key=key,
        )

    @property
    def rank_folder(self) -> Path:
        """The folder of this rank on this machine, where orch reaches it by `address`."""
        return host_folder(self.home, self.address.alias)

    def start(self, *, wait: bool = True) -> None:
        config = self.folder / "sshd_config"
        config.write_text(self._config())
        log = self.folder / "sshd.log"
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL, start_new_session=True
        )
        if wait:
            self.await_listening()

    def await_listening(self) -> None:
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            with contextlib.suppress(OSError), socket.create_connection((self.ip, self.port), 1):
                return
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.02)
        raise AssertionError(f"sshd on {self.ip} did not start: {(self.folder / 'sshd.log').read_text()}")

    def pids(self) -> list[int]:
        """The server, its connections and everything that runs on this host."""
        own = [] if self.process is None else [self.process.pid, *_descendants(self.process.pid)]
        return list(dict.fromkeys([*own, *self.user_pids()]))

    def user_pids(self) -> list[int]:
        """What was started over SSH on this host, detached or not."""
        needle = f"ORCH_TEST_HOST={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if needle in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """The machine is gone from one moment to the next: everything on it gets KILL."""
        for _ in range(3):  # a process may have been forked while we looked
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)
            self.process = None

    stop = kill

    def freeze(self) -> None:
        """The kernel still acknowledges packets, but nothing on the host runs any more."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def change_host_key(self) -> None:
        """Another machine got this address: same port, another key; `address` still pins the old one."""
        self.kill()
        self._new_host_key()
        self.start()

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _new_host_key(self) -> str:
        private, public = make_host_key()
        _secret(self.folder / "host_key", private)
        return public

    def _config(self) -> str:
        return f"""\
ListenAddress {self.ip}:{self.port}
HostKey {self.folder}/host_key
AuthorizedKeysFile {self.folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
LogLevel ERROR
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
SetEnv HOME={self.home} ORCH_TEST_HOST={self.mark}
{self.extra}
"""


class Relay:
    """Forwards one TCP port, until `vanish`: then no packet is answered any more, not even by the kernel."""

    def __init__(self, target: HostAddress) -> None:
        self._target = target
        self._listener = socket.create_server((target.host, 0))
        self._sockets: list[socket.socket] = []
        self._peer: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._ended = False
        self._closing = False
        self.address = replace(target, port=self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Relay:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._waker.send(b"x")
        self._thread.join(10)
        for sock in [self._listener, *self._sockets, self._wake, self._waker]:
            sock.close()
        self._selector.close()

    def vanish(self) -> None:
        self._ended = True
        for sock in [self._listener, *self._sockets]:
            drop_packets(sock)
        self._waker.send(b"x")

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._wake:
                    sock.recv(16)
                elif self._ended:
                    self._selector.unregister(sock)
                elif sock is self._listener:
                    self._join()
                else:
                    self._forward(sock)

    def _join(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection((self._target.host, self._target.port), 5)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        for sock, peer in ((near, far), (far, near)):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peer[sock] = peer
            self._sockets.append(sock)
            self._selector.register(sock, selectors.EVENT_READ)

    def _forward(self, sock: socket.socket) -> None:
        peer = self._peer[sock]
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(1 << 16)
        with contextlib.suppress(OSError):
            if data:
                peer.sendall(data)
                return
        for end in (sock, peer):
            with contextlib.suppress(KeyError):
                self._selector.unregister(end)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def listener_that(behaviour: str, ip: str = "127.0.0.1") -> Iterator[int]:
    """The port of a listening socket that is a `blackhole` (answers no SYN) or `silent` (accepts, says nothing)."""
    with socket.create_server((ip, 0)) as sock:
        if behaviour == "blackhole":
            drop_packets(sock)
        else:
            assert behaviour == "silent"
        yield sock.getsockname()[1]


def drop_packets(sock: socket.socket) -> None:
    """Let the kernel drop everything that arrives for `sock`, unacknowledged (a socket filter; needs no rights)."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes
    header = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, 26, header)  # SO_ATTACH_FILTER


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        current = todo.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{current}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                todo += children
    return found


def _free_port(ip: str) -> int:
    with socket.socket() as sock:
        sock.bind((ip, 0))
        return int(sock.getsockname()[1])


def _secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
