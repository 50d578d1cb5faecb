"""The retry policies of orch: which pauses, how many tries, and for how long.

tenacity repeats the tries. It is loaded after a first failure only, since its import costs as much as a light command.

Whether an error is worth another try is decided by the caller, who can classify it. Reads that a vendor's library
repeats itself (botocore, obstore) get their numbers from here where the library takes them. Waits that poll for a
state, and not for the success of a call, are no retries and are not here.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential pauses with jitter.

    Attributes:
        first: seconds after the first failed try, before jitter.
        longest: the most seconds, before jitter.
        factor: from one pause to the next; 1.0 for equal pauses.
        jitter: the lower and upper factor of a pause, so that many processes do not retry at the same time.
    """

    first: float
    longest: float = float("inf")
    factor: float = 2.0
    jitter: tuple[float, float] = (1.0, 1.0)

    def pause(self, tries: int, chance: float) -> float:
        """Return the seconds to wait after `tries` failed tries; `chance`, in [0, 1), chooses within the jitter."""
        low, high = self.jitter
        return min(self.longest, self.first * self.factor ** min(tries - 1, 30)) * (low + (high - low) * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a call is repeated.

    Attributes:
        backoff: the pauses.
        attempts: the most tries, None for no limit.
        deadline: seconds after which no further try begins, None for no limit.
    """

    backoff: Backoff
    attempts: int | None = None
    deadline: float | None = None

    def run(
        self,
        call: Callable[[], _Result],
        *,
        retry: Callable[[BaseException], bool],
        requested_pause: Callable[[BaseException], float | None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], None] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> _Result:
        """Call until it succeeds; raise its last exception when no further try is allowed.

        Args:
            call: the call.
            retry: whether an exception is worth another try.
            requested_pause: the seconds that the service asks to wait, None for those of the backoff.
            stopped: whether no further try may begin, for a caller that can be interrupted.
            sleep: waits between tries; None for time.sleep.
            chance: a number in [0, 1) for the jitter of each pause; `chance_of` makes it deterministic.
        """
        began = time.monotonic()
        try:
            return call()
        except BaseException as error:
            if not retry(error):
                raise
            failed = [error]

        def again() -> _Result:
            if failed:
                raise failed.pop()  # the first try, made before tenacity was loaded
            return call()

        from tenacity import RetryCallState, Retrying, retry_if_exception

        def wait(state: RetryCallState) -> float:
            error = None if state.outcome is None else state.outcome.exception()
            pause = None if error is None else requested_pause(error)
            return self.backoff.pause(state.attempt_number, chance()) if pause is None else pause

        def stop(state: RetryCallState) -> bool:
            spent = self.attempts is not None and state.attempt_number >= self.attempts
            late = self.deadline is not None and time.monotonic() - began >= self.deadline
            return spent or late or stopped()

        return Retrying(retry=retry_if_exception(retry), stop=stop, wait=wait, sleep=sleep or time.sleep, reraise=True)(
            again
        )


def chance_of(seed: str) -> float:
    """Return a number in [0, 1) that depends on `seed` alone, for deterministic jitter."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**32


CLOUD_READ = RetryPolicy(attempts=4, backoff=Backoff(first=0.2, jitter=(0.5, 1.0)))
"""Reads of a cloud's API. A change is never repeated here: the engine repeats it after an observation."""

CLOUD_THROTTLED = RetryPolicy(attempts=4, backoff=Backoff(first=1.0, jitter=(0.5, 1.0)))
"""Changes of a cloud that were throttled, and so had no effect."""

CLOUD_CONSISTENCY = RetryPolicy(attempts=4, backoff=Backoff(first=0.5))
"""Requests that name a resource just made, which a cloud that is consistent only eventually may not know everywhere."""

CLOUD_NEW_PROFILE = RetryPolicy(attempts=5, backoff=Backoff(first=1.0))
"""Launches with an instance profile that EC2 does not know yet: 15 seconds. A profile made a moment ago is known
after seconds (hashicorp/terraform issue 15341, 2017; aws/karpenter-provider-aws pull request 7849, 2025)."""

BUCKET_READ = RetryPolicy(attempts=7, deadline=90.0, backoff=Backoff(first=0.1, longest=5.0))
"""Requests to buckets that may be repeated; obstore runs them."""

BUCKET_BODY = RetryPolicy(attempts=5, deadline=90.0, backoff=Backoff(first=0.1, longest=5.0, jitter=(0.75, 1.25)))
"""Requests to buckets whose answer was cut in its body, which obstore repeats for downloads only."""

BUCKET_CONDITIONAL = RetryPolicy(attempts=5, backoff=Backoff(first=0.05, longest=2.0))
"""Conditional writes, whose refusals have to be compared with the content between two tries."""

STORE_CONNECT = Backoff(first=0.2, factor=1.0)
"""Connecting to PostgreSQL again, for example while it restarts."""

STORE_JOURNAL = Backoff(first=0.02, factor=1.0)
"""Switching SQLite's journal while another process does so: SQLite refuses without its own busy wait."""

SSH_CONNECT = Backoff(first=0.2, longest=2.0, jitter=(1.0, 1.25))
"""Connecting to a host."""

ENGINE_STEP = Backoff(first=1.0, longest=30.0, jitter=(0.75, 1.25))
"""Steps of the engine that failed with an error of the cloud."""

UNATTENDED_WORK = Backoff(first=15.0, longest=600.0)
"""Work of the unattended engine that failed for a reason outside of the job."""

NOTIFICATION = RetryPolicy(attempts=3, backoff=Backoff(first=2.0, longest=30.0, jitter=(0.75, 1.25)))
"""Tries of one message in one round of a channel."""

NOTIFICATION_ROUND = Backoff(first=30.0, longest=600.0, jitter=(0.75, 1.25))
"""Rounds of a channel that fails: the message is kept until it is accepted."""
