"""Mirrors on the loopback as a fresh host meets them: slow, one of them failing, one that hangs for a while."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHUNK = 64 * 1024
PAUSE = 0.01  # seconds between two chunks


@dataclass
class Mirrors:
    """Files of `folder`, by path.

    Attributes:
        failing: Beginnings of paths whose first requests, so many, are answered 503.
        hangs: Seconds that the next request below /hanging takes to be answered.
        seen: Requests by path.
    """

    folder: Path
    failing: dict[str, int] = field(default_factory=dict[str, int])
    hangs: float = 0.0
    seen: Counter[str] = field(default_factory=Counter[str])
    url: str = ""


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, mirrors: Mirrors, *args: Any, **more: Any) -> None:
        self.mirrors = mirrors
        super().__init__(*args, directory=str(mirrors.folder), **more)

    def do_GET(self) -> None:
        mirrors = self.mirrors
        mirrors.seen[self.path] += 1
        if self.path.startswith("/hanging"):
            held, mirrors.hangs = mirrors.hangs, 0.0
            time.sleep(held)
        beginning = next((one for one in mirrors.failing if self.path.startswith(one)), None)
        if beginning is not None and mirrors.failing[beginning] > 0:
            mirrors.failing[beginning] -= 1
            self.send_error(503)
            return
        super().do_GET()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while chunk := source.read(CHUNK):
            outputfile.write(chunk)
            time.sleep(PAUSE)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_mirrors(folder: Path) -> Iterator[Mirrors]:
    mirrors = Mirrors(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, mirrors)) as server:
        mirrors.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield mirrors
        server.shutdown()
        thread.join()


def write_repository(folder: Path, package: str) -> None:
    """Write a flat repository of Debian with one package, which has one file."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share" / package).mkdir(parents=True)
    (tree / "usr/share" / package / "there").write_text("yes\n")
    control = f"Package: {package}\nVersion: 1.0\nArchitecture: all\nMaintainer: orch <orch@example.org>\n"
    (tree / "DEBIAN/control").write_text(f"{control}Description: of a test\n")
    archive = folder / f"{package}.deb"
    subprocess.run(["dpkg-deb", "--build", "-Zgzip", str(tree), str(archive)], check=True, capture_output=True)
    size, digest = archive.stat().st_size, _sha256(archive)
    (folder / "Packages").write_text(
        f"{control}Filename: ./{archive.name}\nSize: {size}\nSHA256: {digest}\nDescription: of a test\n\n"
    )


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()
