"""The state machine of a slice, the same for every cloud: create, observe, finish, end, sweep. See protocol.Provider.

A slice is acted on by its record where there is one here, else by its labels in the cloud.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic

from orchestrator.errors import CloudError, ConflictError, CredentialsError, NotFoundError, OrchError
from orchestrator.providers.core.creation import Creation, list_steps
from orchestrator.providers.core.driver import SETTLE_SECONDS, SliceDriver
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.core.journal import Cursor, Journals
from orchestrator.providers.core.listed import Sightings, group_slices, list_unused, view_unrecorded
from orchestrator.providers.core.record import Phase, R, SliceRecords
from orchestrator.slices import Candidate, OwnedSlice, SliceKeys, SliceSpec, SliceState, SliceView

_PASSING = frozenset({Kind.CAPACITY, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER})


class SliceProvider(Generic[R]):
    """The slices of one driver.

    Args:
        driver: What is declared of the cloud.
        records: The records of the slices.
        journals: The journals of their creates.
        now: Epoch seconds.
    """

    def __init__(
        self, driver: SliceDriver[R], records: SliceRecords[R], journals: Journals, now: Callable[[], float] = time.time
    ) -> None:
        self.name = driver.name
        self._driver = driver
        self._records = records
        self._journals = journals
        self._now = now
        self._sightings = Sightings()

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """See protocol.Provider. A refusal leaves nothing behind.

        Raises:
            ConflictError: The name belongs to another owner, or to another request.
            CloudError: An answer was lost, or a part was made that could not be removed.
        """
        spec.token.reveal()
        steps = list_steps(self._driver.plan_create(spec))
        new = self._driver.new_record(spec, keys, self._now())
        with self._explained("create", spec.name, spec.candidate, new):
            begun = self._begin(new)
            if begun is None:
                return
            record, repeated = begun
            cursor = Cursor(self._journals, self._journals.begin(record.name, record.token))
            Creation(
                driver=self._driver,
                records=self._records,
                cursor=cursor,
                record=record,
                steps=steps,
                repeated=repeated,
                now=self._now,
            ).run(spec, keys)

    def observe(self, name: str, token: str = "") -> SliceView:
        """See protocol.Provider. What the cloud answers with an error is UNCLEAR, with its message."""
        return self._view(self._observe, name, token, finish=False)

    def finish(self, name: str, token: str = "") -> SliceView:
        """See protocol.Finishes."""
        return self._view(self._finish, name, token, finish=True)

    def diagnose_hosts(self, name: str, token: str, ranks: Sequence[int]) -> Mapping[int, str]:
        """See protocol.DiagnosesHosts."""
        record = self._find_record(name, token)
        with self._explained("ask for the status of", name, record=record):
            return {} if record is None else self._driver.diagnose(record, ranks)

    def end(self, name: str, token: str = "") -> None:
        """See protocol.Provider: machines first, then what they leave behind."""
        record = self._find_record(name, token)
        with self._explained("end", name, record=record):
            if record is None:
                self._end_listed(name, token)
            elif record.phase is not Phase.REFUSED:
                if record.phase is not Phase.ENDING:
                    record = self._records.write(record, Phase.ENDING, **self._driver.note_end(record))
                if self._driver.end_machines(record):
                    self._driver.remove_left(record)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """See protocol.Provider.

        Raises:
            CloudError: The listing is incomplete.
        """
        with self._explained("list", ""):
            return group_slices(self._driver.list_resources(installation=installation))

    def _begin(self, new: R) -> tuple[R, bool] | None:
        """Return the record of a create, and whether it was begun before; None when it is accepted already."""
        for expired in self._records.list_expired():
            self._journals.drop(expired.name)
            self._records.forget(expired)
        old = self._records.read(new.name)
        if old is None or old.phase is Phase.REFUSED:
            return self._records.put(new), False
        same = old.token == new.token
        if same and old.phase in (Phase.ACCEPTED, Phase.WAITING):
            return None
        if same and old.phase is Phase.ASKED:
            return self._records.put(self._driver.renew(old, new)), True
        view = self._finish(old)
        if view.state is SliceState.UNCLEAR:
            raise CloudError(f"create {new.name}: it is not known whether the name is free", view.reason, "try again")
        if view.state is not SliceState.ABSENT:
            why = "it is being ended" if old.phase is Phase.ENDING else "it was made for another request"
            raise ConflictError(
                f"a {self._driver.noun} '{new.name}' exists already",
                why,
                "orch status   or take another name: -c NAME",
            )
        return self._records.put(new), same

    def _observe(self, record: R) -> SliceView:
        if record.phase is Phase.REFUSED:
            return SliceView(state=SliceState.ABSENT)
        view = self._driver.observe(record)
        if view is None:
            return self._judge_absence(record)
        noted = self._driver.note_view(record, view)
        changes = {"empty": 0.0, **noted} if record.empty else noted
        if changes:
            record = self._records.write(record, **changes)
        return self._judge_left(record) if view.state is SliceState.ABSENT else view

    def _judge_absence(self, record: R) -> SliceView:
        """Return ABSENT for a slice that is not shown, unless a create may still arrive or something else is left."""
        lags = self._driver.listing_lags
        if lags and not record.empty:
            record = self._records.write(record, empty=self._now())
        if record.phase is Phase.ACCEPTED and (pending := self._driver.observe_pending(record)) is not None:
            return pending
        remaining = record.asked + SETTLE_SECONDS - self._now()
        if remaining > 0 and self._driver.may_arrive(record):
            state = SliceState.CREATING if record.phase is Phase.ACCEPTED else SliceState.UNCLEAR
            reason = f"requested, not shown yet; it may appear for another {remaining:.0f} s"
            return SliceView(state=state, reason=reason)
        state = SliceState.ENDING if record.phase is Phase.ENDING else SliceState.UNCLEAR
        if lags and (doubt := self._doubt(record.empty, state)) is not None:
            return doubt
        return self._judge_left(record)

    def _doubt(self, empty_since: float, state: SliceState) -> SliceView | None:
        """Return the view of a slice of which nothing is shown, until that has been so for a while; then None."""
        if self._now() - empty_since >= SETTLE_SECONDS:
            return None
        return SliceView(state=state, reason="nothing of it is shown; that is believed after a second look")

    def _judge_left(self, record: R) -> SliceView:
        """Return the view of a slice whose machines are deleted."""
        left = self._driver.list_left(record)
        if not left:
            return SliceView(state=SliceState.ABSENT)
        if record.phase is Phase.ENDING:
            return _not_deleted(left)
        reason = f"its machines are deleted; these are not: {', '.join(left)}"
        return SliceView(state=SliceState.FAILED, reason=reason[:300])

    def _finish(self, record: R) -> SliceView:
        view = self._observe(record)
        if not view.due:
            return view
        match record.phase:
            case Phase.WAITING:
                return self._send_waiting(record, view)
            case Phase.ENDING:
                left = self._driver.remove_left(record)
                return _not_deleted(left) if left else SliceView(state=SliceState.ABSENT)
            case _:
                problem = self._driver.finish_ready(record)
                if problem is not None:
                    return problem
                return self._observe(self._records.write(record, **self._driver.note_finished(record)))

    def _send_waiting(self, record: R, view: SliceView) -> SliceView:
        """Send the request of a slice whose time has come."""
        changes, request = self._driver.resume(record)
        record = self._records.write(record, asked=self._now(), **changes)
        try:
            answer = self._driver.send(record, request, fresh=False)
        except Refused as refused:
            if refused.answer.kind in _PASSING:
                return SliceView(state=SliceState.CREATING, reason=str(refused.answer), until=view.until)
            error = self._driver.explain("create", record.name, refused.answer, None, record)
            return SliceView(state=SliceState.FAILED, reason=str(refused.answer), refused=error)
        self._records.write(record, Phase.ACCEPTED, **self._driver.note_answer(record, request, answer))
        return SliceView(state=SliceState.CREATING, reason=f"{view.reason}, its machines are requested")

    def _view(self, observe: Callable[[R], SliceView], name: str, token: str, *, finish: bool) -> SliceView:
        try:
            record = self._find_record(name, token)
            return self._observe_listed(name, token, finish=finish) if record is None else observe(record)
        except Refused as refused:
            login = ""
            if refused.answer.kind is Kind.CREDENTIALS:
                login = self._driver.explain("look at", name, refused.answer, None, self._records.read(name)).next_step
            return SliceView(state=SliceState.UNCLEAR, reason=refused.answer.reason, login=login)
        except CredentialsError as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error), login=error.next_step)
        except (OrchError, OSError, LookupError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def _observe_listed(self, name: str, token: str, *, finish: bool) -> SliceView:
        """Return the view of a slice without a record. In a lagging account, absence takes a second observation.

        Machines that were recorded elsewhere may not be shown yet. Those whose end was requested from here were shown.
        """
        found, key = self._driver.list_resources(name, token), (name, token)
        if finish and key in self._sightings.ended and (unused := list_unused(found)):
            self._driver.remove_listed(tuple(unused.values()))
        if found:
            self._sightings.empty_since.pop(key, None)
            return view_unrecorded(found)
        since = self._sightings.empty_since.setdefault(key, self._now())
        lags = self._driver.listing_lags and self._driver.bound and key not in self._sightings.ended
        doubt = self._doubt(since, SliceState.UNCLEAR) if lags else None
        return doubt or SliceView(state=SliceState.ABSENT)

    def _end_listed(self, name: str, token: str) -> None:
        found = self._driver.list_resources(name, token)
        if not found:
            return
        self._sightings.ended.add((name, token))
        self._driver.end_listed(found)
        if unused := list_unused(found):
            self._driver.remove_listed(tuple(unused.values()))

    def _find_record(self, name: str, token: str) -> R | None:
        """Return the record of a slice; of two slices of one name, the record here may be that of the other one."""
        record = self._records.read(name)
        return None if record is not None and token not in ("", record.token) else record

    @contextmanager
    def _explained(
        self, verb: str, name: str, candidate: Candidate | None = None, record: R | None = None
    ) -> Generator[None]:
        """Turn an answer of the cloud into an error for the user."""
        try:
            yield
        except Refused as refused:
            raise self._driver.explain(verb, name, refused.answer, candidate, record) from refused
        except OSError as error:
            raise CloudError(
                f"{verb} {name} failed on this computer", str(error), "fix that, then run the same command again"
            ) from error


class StoppableProvider(SliceProvider[R]):
    """Slices whose machines can be stopped and kept; see protocol.Stops."""

    def stop(self, name: str) -> None:
        """Request the stop of a slice.

        Raises:
            UserError: Its machines cannot be stopped and kept.
            NotFoundError: It does not exist, or was made elsewhere.
            ConflictError: It is in another state.
        """
        self._change_power(name, "stop", (SliceState.STOPPED, SliceState.STOPPING), SliceState.READY)

    def start(self, name: str) -> None:
        """Request the start of a stopped slice. Raises what `stop` raises."""
        self._change_power(name, "start", (SliceState.READY, SliceState.STARTING), SliceState.STOPPED)

    def _change_power(self, name: str, verb: str, done: tuple[SliceState, ...], allowed: SliceState) -> None:
        record, noun = self._records.read(name), self._driver.noun
        if record is None:
            raise NotFoundError(f"there is no {noun} '{name}' that was made from here", "", "orch status")
        refusal = self._driver.refuse_stop(record)
        if refusal is not None:
            raise refusal
        with self._explained(verb, name, record=record):
            view = self._driver.observe_power(record) or self._observe(record)
            if view.state in done:
                return
            if view.state is SliceState.ABSENT:
                raise NotFoundError(f"there is no {noun} '{name}'", "", "orch status")
            if view.state is not allowed:
                raise ConflictError(f"{noun} '{name}' is {view.state}", view.reason or "not now", "orch status")
            record = self._records.read(name) or record  # with what the observation has recorded
            record = self._records.write(record, **self._driver.note_power(record, verb))
            self._driver.change_power(record, verb)


def _not_deleted(left: list[str]) -> SliceView:
    return SliceView(state=SliceState.ENDING, reason=f"not deleted yet: {', '.join(left)}"[:300], due=True)
