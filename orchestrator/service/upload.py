"""Content that is too large for memory: it goes to a file as it comes, up to a limit."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import CapacityLimiter, fail_after, to_thread
from starlette.requests import ClientDisconnect, Request

from orchestrator.errors import AccessError, ConflictError, UserError
from orchestrator.private_files import make_private_folder
from orchestrator.service.route import Person, Route

MEDIUM = "application/octet-stream"
_SILENCE_SECONDS = 30.0  # between two parts
_LEAST_RATE = 16_384  # bytes a second, after the first minute: who is slower keeps others from sending
_OF_ONE_MEMBER = 2  # at a time; others are refused
_MOST_SECONDS = 3600.0
_BLOCK = 1 << 20  # bytes that are written together


class BusyError(ConflictError):
    """The member sends other files at this moment."""

    code = "busy"


class TooLargeError(UserError):
    """More is sent than the route takes."""

    code = "too-large"


@asynccontextmanager
async def receive_file(
    request: Request, route: Route, person: Person | None, folder: Path, limiter: CapacityLimiter, receiving: list[str]
) -> AsyncGenerator[Path]:
    """Write the content of a request to a file, which exists until the end of the block.

    Args:
        request: The request.
        route: Its route, with the limit.
        person: Who sends it; a program, with a token.
        folder: Where the file is made.
        limiter: How many are received at a time.
        receiving: Whose files are received or wait, a name for each.

    Raises:
        AccessError: A browser's session sends it.
        UserError: It is too large, or it did not come completely.
        BusyError: The member sends as many already.
    """
    if person is None or person.session:
        raise AccessError("files are sent by a program, with a token", "", "orch launch   sends them")
    if request.headers.get("content-type", "").partition(";")[0].strip() != MEDIUM:
        raise UserError(f"the body is not {MEDIUM}", "", "see /openapi.json")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > route.most_content:
        raise _refuse_size(route)
    if sum(one == person.name for one in receiving) >= _OF_ONE_MEMBER:
        raise BusyError(f"you are sending {_OF_ONE_MEMBER} trees already", "", "wait for their end")
    receiving.append(person.name)
    try:
        async with limiter, _receive(request, route, folder) as file:
            yield file
    finally:
        receiving.remove(person.name)


@asynccontextmanager
async def _receive(request: Request, route: Route, folder: Path) -> AsyncGenerator[Path]:
    make_private_folder(folder)
    _delete_leftovers(folder)
    number, name = tempfile.mkstemp(prefix=".received-", dir=folder)
    try:
        with os.fdopen(number, "wb", buffering=_BLOCK) as file:
            await _write(request, route, file.write)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _delete_leftovers(folder: Path) -> None:
    """Delete what a server that was killed had begun to receive."""
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another server deleted it
            if file.stat().st_mtime < time.time() - 2 * _MOST_SECONDS:
                file.unlink()


async def _write(request: Request, route: Route, write: Callable[[bytes], int]) -> None:
    size, parts, began = 0, request.stream(), time.monotonic()
    try:
        with fail_after(_MOST_SECONDS):
            while True:
                with fail_after(_SILENCE_SECONDS):
                    part = await anext(parts, None)
                if part is None:
                    return
                size += len(part)
                if (passed := time.monotonic() - began) > 60.0 and size < passed * _LEAST_RATE:
                    raise TimeoutError
                if size > route.most_content:
                    raise _refuse_size(route)
                await to_thread.run_sync(write, part)
    except (TimeoutError, ClientDisconnect) as error:
        why = f"nothing came for {_SILENCE_SECONDS:.0f} s, it came too slowly, or the connection was cut"
        raise UserError("the files did not come completely", why, "send them again") from error


def _refuse_size(route: Route) -> TooLargeError:
    step = "put large data into a bucket: file_mounts, or data of the program; .orchignore leaves files out"
    return TooLargeError("that is too large to be sent", f"at most {route.most_content:,} bytes, packed", step)
