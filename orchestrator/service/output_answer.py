"""The answer with output of a job: where nothing is new it is held, and has no thread meanwhile."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response

from orchestrator.documents.output_parts import MEDIUM, encode_output
from orchestrator.service.output_waits import OutputWaits
from orchestrator.service.planners import MemberShares
from orchestrator.service.route import Answer, Call


async def answer_with_output(
    waits: OutputWaits,
    shares: MemberShares,
    limiter: CapacityLimiter,
    handler: Callable[[Call], Answer],
    call: Call,
    *,
    packed: bool,
) -> Response:
    """Answer a request for output.

    Args:
        waits: Holds the request while nothing is new.
        shares: How many threads each member has.
        limiter: The threads.
        handler: Reads what there is.
        call: The request.
        packed: Whether the answer is packed with gzip.
    """
    member = call.person.name if call.person is not None else ""
    loop = asyncio.get_running_loop()
    end = loop.time() + call.query["wait"]
    while True:
        async with shares.of(member):
            made = await to_thread.run_sync(handler, call, limiter=limiter)
        left = end - loop.time()
        if made.unchanged is None or left <= 0 or not await waits.wait(made.unchanged, left, member):
            return await to_thread.run_sync(_respond, made, packed, limiter=limiter)


def _respond(made: Answer, packed: bool) -> Response:
    """Return a response. It is packed here and not by the middleware, which would hold up all other requests."""
    content, headers = encode_output(made.document, made.parts), {"Cache-Control": "no-store"}
    if packed:
        content = gzip.compress(content, compresslevel=1)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(content, media_type=MEDIUM, headers=headers)
