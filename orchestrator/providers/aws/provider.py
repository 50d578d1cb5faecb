"""The provider "aws": slices of EC2, with what only AWS has: accounts by profile, and rules of security groups."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from orchestrator.clock import RealClock, ServerClock
from orchestrator.options import Details
from orchestrator.providers.aws import admitting, choices, configured
from orchestrator.providers.aws.ec2 import Ec2Driver
from orchestrator.providers.aws.identity import read_account, refuse_other_account
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.aws.record import Record, Records
from orchestrator.providers.aws.recovering import Recovery
from orchestrator.providers.aws.session import AwsSession, import_library, open_session
from orchestrator.providers.core.journal import open_journals
from orchestrator.providers.core.recovery import RecoverableProvider
from orchestrator.providers.records import FolderRecords, RecordSource
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import Candidate, OwnedSlice

FOLDER = "aws"  # of the records, below the state folder
_ASK_ACCOUNT = "ask for the account of the credentials"


def open_provider(state: Path, clock: ServerClock | None = None, records: RecordSource = FolderRecords) -> AwsProvider:
    """Return the provider. Credentials are looked for by profile, when they are needed.

    Raises:
        UserError: The library is not installed.
    """
    import_library()
    clock = clock or RealClock()
    return AwsProvider(partial(open_session, learn=clock.learn), records(state.absolute() / FOLDER), clock.now)


class AwsProvider(RecoverableProvider[Record]):
    """See providers/protocol.py. The arguments are those of Ec2Driver."""

    place_word = "profile"
    searched = "every region"

    def __init__(
        self,
        sessions: Callable[[str], AwsSession],
        records: RecordPlace | Path,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        place = FolderRecords(records) if isinstance(records, Path) else records
        kept = Records(place)
        self._ec2 = Ec2Driver(sessions, kept, now, sleep)
        super().__init__(self._ec2, kept, open_journals(place), now)

    def account(self, candidate: Candidate) -> str:
        """See protocol.HasAccounts."""
        with self._explained(_ASK_ACCOUNT, ""):
            return read_account(self._ec2.session(str(Principal.of(candidate))))

    def within(self, account: str, candidate: Candidate) -> AwsProvider:
        """See protocol.HasAccounts."""
        principal = str(Principal.of(candidate))
        with self._explained(_ASK_ACCOUNT, ""):
            refuse_other_account(self._ec2.session(principal), account)
        bound = self._copy()
        bound._ec2.bound_to = principal
        return bound

    def for_caller(self, caller: str) -> AwsProvider:
        """See protocol.NamesCallers: the name of the sessions of assumed roles."""
        bound = self._copy()
        bound._ec2.caller = caller
        return bound

    def places(self, *, named: bool) -> tuple[str, ...]:
        """See protocol.HasPlaces."""
        usual = configured.usual_profile(os.environ, Path.home())
        here = {""} if usual is not None else set[str]()
        found = {place[0] for place in self._records.places()} | here
        if named:
            found |= {*configured.list_profiles(os.environ, Path.home())}
        return tuple(sorted(found - {usual or ""} | here)) or ("",)

    def at(self, place: str) -> AwsProvider:
        """See protocol.HasPlaces."""
        bound = self._copy()
        bound._ec2.only = place
        return bound

    def place_as(self, details: Details) -> str:
        """See protocol.HasIdentities."""
        return str(Principal.of_details(details))

    def place_account(self) -> str:
        """See protocol.NamesAccounts."""
        with self._explained(_ASK_ACCOUNT, ""):
            return read_account(self._ec2.session(self._ec2.only or ""))

    def place_of(self, account: str) -> str:
        """See protocol.NamesAccounts: which account a profile is of, only its credentials say."""
        return ""

    def needs_admission(self, candidate: Candidate) -> bool:
        """See protocol.PlansAdmission."""
        return PLANNER.needs_admission(candidate)

    def own_address(self, candidate: Candidate) -> str:
        """See protocol.AdmitsAddresses."""
        return self._ec2.address(str(Principal.of(candidate))).read()

    def change_addresses(
        self, name: str, token: str, candidate: Candidate, admitted: Mapping[str, str], withdrawn: Collection[str]
    ) -> None:
        """See protocol.AdmitsAddresses."""
        record, place = self._find_record(name, token), choices.read(candidate).place
        region = record.region if record is not None else place.region
        calls = self._ec2.calls(str(Principal.of(candidate)), region)
        with self._explained("admit this computer to", name):
            admitting.change_addresses(calls, name, token, admitted, withdrawn)

    def _recover(self, found: OwnedSlice) -> Recovery:
        region = found.where.split("/")[1]
        return Recovery(self._ec2.calls(self._ec2.only or "", region), found.name, found.intent)

    def _copy(self) -> AwsProvider:
        """Return the same provider with its own driver, which shares sessions and sightings."""
        other = copy.copy(self)
        other._ec2 = copy.copy(self._ec2)
        other._driver = other._ec2
        return other
