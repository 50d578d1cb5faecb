"""Machines whose account is not on record, as in stores of versions before 4: an empty answer proves nothing."""

from __future__ import annotations

from orchestrator.errors import OtherAccountError
from orchestrator.plan.observed import Intent
from orchestrator.providers.protocol import HasAccounts, HasPlaces, Provider
from orchestrator.slices import SliceState, SliceView


def has_unknown_account(provider: Provider, intent: Intent) -> bool:
    """Return whether the credentials in use may be of another account than the machines of an intent."""
    return not intent.account and isinstance(provider, HasAccounts) and isinstance(provider, HasPlaces)


def shows_machines(view: SliceView) -> bool:
    """Return whether a view proves that machines exist in the account of the credentials in use."""
    return bool(view.installation) or view.state is SliceState.READY


def make_unknown_account_error(cluster: str, intent: Intent) -> OtherAccountError:
    """Return the error for machines that are not shown, and may be in another account."""
    return OtherAccountError(
        f"cannot tell whether {intent.name} exists: the account of these machines is not on record",
        "the credentials in use show no such machines, and may be of another account",
        f"with the credentials that made them: orch status {cluster}   which records the account\n"
        f"or close the record; the machines may still run: orch down {cluster} --abandon",
    )
