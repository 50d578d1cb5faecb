"""The sweep: list what carries an orch label in every place, compare it with the records, end orphans."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.drivers import get_driver, list_clouds
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.report_wait import report_wait
from orchestrator.engine.services import Services
from orchestrator.engine.state.identities import identity_of, list_identities
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import CloudError, ConflictError, OrchError, OtherAccountError
from orchestrator.messages import count_noun
from orchestrator.paths import Paths
from orchestrator.plan.observed import FINAL_STATES, Intent, IntentState
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.plan.sweep import SweptSlice, classify_slice
from orchestrator.project import DEFAULT_PROJECT, qualify_name
from orchestrator.providers.protocol import Finishes, HasIdentities, HasPlaces, NamesAccounts, Provider
from orchestrator.providers.registry import Rented, list_rented_providers
from orchestrator.slices import OwnedSlice, SliceState
from orchestrator.store.store import Store
from orchestrator.task.config import load_config

END_DEADLINE = 2400.0  # seconds a slice may need to end: large machines take half an hour
RESEND_AFTER = 60.0
LEFT_AFTER = 10.0  # the same, for auxiliary resources that outlive the machines
PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class PlaceFindings:
    """The answer of one place: a provider, or one of its accounts or projects.

    Attributes:
        provider: The provider's name.
        place: See HasPlaces; "" for the usual one, or where there is only one.
        described: Both for people, such as "aws profile dev".
        account: The account of the place, as intents record it; "" where it has none, or did not say.
        searched: Where in the place slices were looked for, such as "every region"; "" where there is one place alone.
        judged: Every slice with an orch label, judged.
        problem: Why its slices could not be listed; then nothing there is judged or ended.
    """

    provider: str
    place: str = ""
    described: str = ""
    account: str = ""
    searched: str = ""
    judged: tuple[SweptSlice, ...] = ()
    problem: OrchError | None = None


@dataclass(frozen=True, slots=True)
class ReapResult:
    """The result for one orphan.

    Attributes:
        orphan: The slice.
        provider: Its provider.
        problem: None when the provider reports it as deleted.
    """

    orphan: SweptSlice
    provider: str
    problem: OrchError | None = None


def find_rented_providers(store: Store, where: Paths) -> tuple[Rented, ...]:
    """Return every provider that may have machines, and whether it has to be asked. Sends nothing."""
    recorded = {intent.candidate.provider for _, intent in store.all_intents()}
    return list_rented_providers(where.state, recorded, os.environ, Path.home())


def find_configured_places() -> dict[str, str]:
    """Return the place that the user's settings name for each provider; it may be neither usual nor on record.

    Raises:
        UserError: The settings have a mistake.
    """
    config = load_config(os.environ)
    return {one.name: config.text(f"{one.name}.{one.place_option}") for one in list_clouds() if one.place_option}


def judge_owned_slices(
    store: Store,
    services: Services,
    providers: Iterable[str],
    configured: Mapping[str, str] | None = None,
    *,
    named: bool = False,
    narrator: Narrator | None = None,
) -> tuple[PlaceFindings, ...]:
    """Judge every slice that carries an orch label.

    The cloud is read first, the records after it: see plan/sweep.py.

    Args:
        store: The records.
        services: Opens the providers.
        providers: Names of the providers that are asked.
        configured: A further place of some providers; see find_configured_places.
        named: Ask also the places that only this computer's configuration names.
        narrator: Gets what is waited for.
    """
    findings: list[PlaceFindings] = []
    for name in providers:
        try:
            places = _places(store, services, name, (configured or {}).get(name, ""), named=named)
            judged = [_judge_place(store, narrator, *place) for place in places]
            findings += [*judged, *_find_unasked(store, services, name, judged)]
        except OrchError as error:  # it could not be opened
            findings.append(PlaceFindings(name, described=name, problem=error))
    return tuple(_without_repeats(findings))


def end_orphans(
    store: Store, services: Services, narrator: Narrator, findings: Iterable[PlaceFindings]
) -> tuple[ReapResult, ...]:
    """End every orphan, each under its cluster's lease and judged once more there."""
    orphans = [(finding, one) for finding in findings for one in finding.judged if one.orphan]
    return tuple(_end_orphan(store, services, narrator, finding, orphan) for finding, orphan in orphans)


def open_place(services: Services, finding: PlaceFindings) -> Provider:
    """Return the provider of one place."""
    provider = services.provider(finding.provider)
    return provider.at(finding.place) if isinstance(provider, HasPlaces) else provider


def judge_again(
    store: Store, services: Services, narrator: Narrator, finding: PlaceFindings, found: OwnedSlice
) -> SweptSlice | None:
    """Return the present verdict on a slice, by its name and intent, or None when it is not listed any more.

    Raises:
        OrchError: Its place did not answer, which proves nothing.
    """
    again = _judge_place(store, narrator, finding, open_place(services, finding))
    if again.problem is not None:
        raise again.problem
    which = (found.name, found.intent)
    return next((one for one in again.judged if (one.slice.name, one.slice.intent) == which), None)


def end_slice(
    provider: Provider, clock: Clock, name: str, token: str, renew: Callable[[SliceState, float], None], again: str
) -> None:
    """Send end requests for one slice, by its token, until the provider reports it as deleted.

    Args:
        provider: Of its place.
        clock: Waits between looks.
        name: Its name.
        token: The token of its intent.
        renew: Called after each look with the state and the seconds so far.
        again: The command that continues.

    Raises:
        OrchError: The end was refused, or took too long.
    """
    began = requested_at = clock.now()
    provider.end(name, token)
    observe = provider.finish if isinstance(provider, Finishes) else provider.observe
    while (state := observe(name, token).state) is not SliceState.ABSENT:
        now = clock.now()
        renew(state, now - began)
        if now - began > END_DEADLINE:
            raise CloudError(f"'{name}' is still {state}", f"its end was requested {END_DEADLINE:.0f} s ago", again)
        patience = LEFT_AFTER if state is SliceState.FAILED else RESEND_AFTER
        if state is not SliceState.UNCLEAR and now - requested_at >= patience:  # also what is stuck in ENDING
            provider.end(name, token)
            requested_at = now
        clock.sleep(PAUSE)


def _places(
    store: Store, services: Services, name: str, configured: str, *, named: bool
) -> Iterator[tuple[PlaceFindings, Provider]]:
    """Yield each place, with nothing found yet, and the provider bound to it. Raises OrchError."""
    provider = services.provider(name)
    if not isinstance(provider, HasPlaces):
        yield PlaceFindings(name, described=name), provider
        return
    places = provider.places(named=named)
    further = [configured]
    if isinstance(provider, NamesAccounts):
        further += [provider.place_of(account) for account in _recorded_accounts(store, name)]
    if isinstance(provider, HasIdentities):
        further += _list_identity_places(store, provider)
    for place in dict.fromkeys((*places, *filter(None, further))):
        described = f"{name} {provider.place_word} {place}" if place else name
        bound = provider.at(place)
        yield PlaceFindings(name, place, described, account=_read_account(bound), searched=_searched(bound)), bound


def _list_identity_places(store: Store, provider: HasIdentities) -> list[str]:
    """Return the places that are asked as another identity: those of machines on record, and of the settings."""
    found = list(list_identities(store.project_settings(), provider.name))
    for _, intent in store.all_intents():
        candidate = intent.candidate
        if candidate.provider != provider.name or intent.state is IntentState.REFUSED:
            continue
        if identity := identity_of(provider.name, candidate.details):
            here = provider.place_of(intent.account) if isinstance(provider, NamesAccounts) and intent.account else ""
            named = candidate.detail(provider.place_word) or here
            found.append((*([(provider.place_word, named)] if named else []), *identity))
    return [provider.place_as(details) for details in dict.fromkeys(found)]


def _read_account(place: Provider) -> str:
    """Return the account of a place; "" when it has none or does not say: its listing gives the reason."""
    try:
        return place.place_account() if isinstance(place, NamesAccounts) else ""
    except OrchError:
        return ""


def _searched(place: Provider) -> str:
    return place.searched if isinstance(place, NamesAccounts) else ""


def _recorded_accounts(store: Store, provider: str) -> dict[str, list[str]]:
    """Return the accounts in which slices were requested for this store, each with the names of its open ones."""
    found: dict[str, list[str]] = {}
    for _, intent in store.all_intents():
        if intent.candidate.provider == provider and intent.account and intent.state is not IntentState.REFUSED:
            names = found.setdefault(intent.account, [])
            names += [intent.name] if intent.state not in FINAL_STATES else []
    return found


def _find_unasked(
    store: Store, services: Services, name: str, judged: Sequence[PlaceFindings]
) -> Iterator[PlaceFindings]:
    """Yield a finding with a problem for each recorded account of which no place was asked."""
    if not isinstance(services.provider(name), NamesAccounts):
        return
    for account, names in _recorded_accounts(store, name).items():
        if account in {one.account for one in judged}:
            continue
        shown, at, mark = account.partition("@")
        described = f"{name} account {shown.rpartition(':')[2]}{' of a simulated cloud' if at + mark else ''}"
        why = f"on record there: {', '.join(names)}" if names else "machines were made there before"
        problem = OtherAccountError(
            f"{count_noun(len(names), 'open record')} of it; no credentials of this computer that were used are of it",
            why,
            f"give the command credentials of that account: export {get_driver(name).account_variable}=...",
        )
        yield PlaceFindings(name, described=described, account=account, problem=problem)


def _judge_place(store: Store, narrator: Narrator | None, finding: PlaceFindings, provider: Provider) -> PlaceFindings:
    """Return the finding of a place with every slice there judged, or with the problem."""
    try:
        with report_wait(narrator, f"asking {finding.described} what carries a label of orch"):
            found = provider.owned("")
    except OrchError as error:
        return replace(finding, judged=(), problem=error)
    intents, began = _by_token(store), store.began
    transferred = {owner.token: owner.holder for owner in store.slice_owners() if owner.holder}
    judged = tuple(classify_slice(one, intents, store.installation, began, transferred) for one in found)
    return replace(finding, judged=judged, problem=None)


def _by_token(store: Store) -> dict[str, Intent]:
    """Return every intent by its token. Of two, the open one: machines that were taken over may be taken back."""
    every = sorted(store.all_intents(), key=lambda pair: pair[1].state not in FINAL_STATES)
    return dict(every)


def _without_repeats(findings: Iterable[PlaceFindings]) -> Iterator[PlaceFindings]:
    """Yield the findings with each slice once: two profiles may be of one account."""
    seen: set[tuple[str, str, str, str]] = set()
    for finding in findings:
        mine = {(finding.provider, one.slice.where, one.slice.name, one.slice.intent): one for one in finding.judged}
        judged = tuple(one for key, one in mine.items() if key not in seen)
        seen |= {*mine}
        yield replace(finding, judged=judged)


def _end_orphan(
    store: Store, services: Services, narrator: Narrator, finding: PlaceFindings, orphan: SweptSlice
) -> ReapResult:
    provider, found = finding.provider, orphan.slice
    name = found.cluster or found.name
    until = services.clock.now() + END_DEADLINE

    def report(state: SliceState, seconds: float) -> None:
        keeper.hold()
        wait = Wait(on=WaitFor.SLICE, reason=f"ending {found.name} (state: {state})", until=until)
        narrator.waiting(wait, seconds)

    qualified = qualify_name(found.project or DEFAULT_PROJECT, name)
    try:
        with LeaseKeeper(store, name, "reap", narrator, key=f"cluster:{qualified}") as keeper:
            keeper.hold()
            still = judge_again(store, services, narrator, finding, found)
            if still is None or not still.orphan:
                return ReapResult(orphan, provider)  # deleted, or on record, meanwhile
            store.event(qualified, "reap", f"{found.name} on {provider} is being ended: {orphan.why}")
            place = open_place(services, finding)
            end_slice(place, services.clock, found.name, found.intent, report, "orch reap")
            store.event(qualified, "reap", f"{found.name} on {provider} is deleted")
    except ConflictError as error:
        return ReapResult(orphan, provider, error)  # its cluster is being worked on: left to the next sweep
    except OrchError as error:
        store.event(qualified, "reap", f"{found.name} on {provider} could not be ended: {error}")
        return ReapResult(orphan, provider, error)
    return ReapResult(orphan, provider)
