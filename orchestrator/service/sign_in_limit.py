"""Limits of sign-ins that ask the identity provider: at a time, and refused ones, by the network that they come from.

Behind a proxy all callers have one network, which is not limited: whoever is there would shut everyone out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anyio import CapacityLimiter

from orchestrator.errors import AccessError
from orchestrator.service.guesses import GUESS_SECONDS, GuessCounter
from orchestrator.service.issuer import BusyIssuerError
from orchestrator.service.oidc import UnlistedPersonError

SIGN_IN_THREADS = 4  # an identity provider may be slow
MOST_OF_NETWORK = 2  # that ask the provider at a time
MOST_WAITING = 20  # that ask or wait, of one network
MOST_REFUSED = 30  # in GUESS_SECONDS, of one network: people of one office may have one address


@dataclass(kw_only=True)
class _Queue:
    """The sign-ins of one network."""

    limiter: CapacityLimiter
    length: int = 0


@dataclass(kw_only=True)
class SignInLimit:
    """Sign-ins that ask the provider or wait to; used in the event loop alone.

    Attributes:
        refused: Those whose code or token was refused, by network.
    """

    refused: GuessCounter = field(default_factory=lambda: GuessCounter(most=MOST_REFUSED))
    _queues: dict[str, _Queue] = field(default_factory=dict[str, _Queue])

    @asynccontextmanager
    async def admit(self, network: str) -> AsyncGenerator[None]:
        """Wait for the network's turn, and count a sign-in while it asks the provider.

        Args:
            network: From which it comes; "" where a proxy hides it.

        Raises:
            BusyIssuerError: Too many of the network wait.
            AccessError: Too many of the network were refused, or this one is.
        """
        if network and not self.refused.may_guess(network):
            why = "too many sign-ins from your network were refused"
            raise AccessError("this sign-in is not tried", why, f"sign in again in {GUESS_SECONDS / 60:.0f} min")
        at_once = MOST_OF_NETWORK if network else SIGN_IN_THREADS
        queue = self._queues.setdefault(network, _Queue(limiter=CapacityLimiter(at_once)))
        if queue.length >= MOST_WAITING:
            raise BusyIssuerError(
                "too many sign-ins ask the identity provider", "it is slow to answer", "sign in again"
            )
        queue.length += 1
        try:
            async with queue.limiter:
                yield
        except UnlistedPersonError:  # the provider knows them, so nothing was guessed
            raise
        except AccessError:
            if network:
                self.refused.note_wrong(network)
            raise
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[network]
