"""Provider "simulated": providers.protocol.Provider, Stops and Preempts over the simulated cloud."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.clock import ServerClock
from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    QuotaError,
    UserError,
)
from orchestrator.providers.records import RecordSource
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Label, Look
from orchestrator.simulator.capacity import RESERVED
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.power import apply_power_requests
from orchestrator.simulator.scenario import ANY
from orchestrator.simulator.state import Phase
from orchestrator.slices import (
    CapacityBlock,
    FlexStart,
    Market,
    OnDemand,
    Owned,
    OwnedSlice,
    Reservation,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
    Spot,
)

INSTALLATION_LABEL = "orch-installation"
CLUSTER_LABEL = "orch-cluster"
INTENT_LABEL = "orch-intent"
_STATES = {
    Phase.CREATING: SliceState.CREATING,
    Phase.READY: SliceState.READY,
    Phase.MAINTENANCE: SliceState.STARTING,  # its hosts come back by themselves
    Phase.PREEMPTED: SliceState.PREEMPTED,
    Phase.FAILED: SliceState.FAILED,
    Phase.STOPPING: SliceState.STOPPING,
    Phase.STOPPED: SliceState.STOPPED,
    Phase.STARTING: SliceState.STARTING,
    Phase.ENDING: SliceState.ENDING,
    Phase.ABSENT: SliceState.ABSENT,
}


class SimulatedProvider:
    """Provider over the simulated cloud; see providers/protocol.py.

    It keeps no durable state: `_missing` only holds since when the cloud does not show a name.

    Attributes:
        installation: End, stop and start only resources with its label; "" means any installation's.
    """

    name = "simulated"

    def __init__(self, access: Access, bodies: Bodies, installation: str = "") -> None:
        self._ours = Label(INSTALLATION_LABEL, installation)
        self._access = access
        self._bodies = bodies
        self._missing: dict[str, float] = {}

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Send one create request and return when the cloud has accepted it; retries are the engine's."""
        self._bodies.check()
        self._missing.pop(spec.name, None)  # first: a create without an answer may have acted, and be shown late
        with self._access.open() as cloud, _explained("create", spec.name):
            cloud.create(_call(cloud, spec, keys))

    def observe(self, name: str, token: str = "") -> SliceView:
        """Observe a slice; report ABSENT once it was missing for longer than the cloud's answers may lag."""
        try:
            with self._access.open() as cloud:
                self._advance(cloud)
                try:
                    look = cloud.get(name)
                except ApiError as error:
                    return self._not_shown(cloud, name, error)
                self._missing.pop(name, None)
                return self._view(cloud, look)
        except OrchError as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def end(self, name: str, token: str = "") -> None:
        """End a slice.

        Raises:
            ConflictError: orch has not created this resource.
        """
        with self._access.open() as cloud, _explained("end", name):
            self._check_ours(cloud, name)
            try:
                cloud.end(name, only=self._ours)
            except ApiError as error:
                if error.code is not Code.NOT_FOUND:
                    raise
        self.advance()

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """List the slices of an installation, "" for those of all.

        Raises:
            CloudError: The listing is incomplete.
        """
        found: list[OwnedSlice] = []
        with self._access.open() as cloud, _explained("list", ""):
            for look in _listed(cloud):
                owner = look.labels.get(INSTALLATION_LABEL, "")
                if owner and installation in ("", owner) and look.phase is not Phase.ABSENT:
                    cluster = look.labels.get(CLUSTER_LABEL, "")
                    where = f"{self.name}/{look.zone}"
                    state = _STATES[look.phase]
                    intent = look.labels.get(INTENT_LABEL, "")
                    found.append(
                        OwnedSlice(
                            name=look.name,
                            cluster=cluster,
                            installation=owner,
                            state=state,
                            created=look.created,
                            where=where,
                            intent=intent,
                            project=look.labels.get("orch-project", ""),
                            member=look.labels.get("orch-member", ""),
                        )
                    )
        return tuple(found)

    def stop(self, name: str) -> None:
        with self._access.open() as cloud, _explained("stop", name):
            self._check_ours(cloud, name)
            cloud.stop(name, only=self._ours)
        self.advance()

    def start(self, name: str) -> None:
        with self._access.open() as cloud, _explained("start", name):
            self._check_ours(cloud, name)
            cloud.start(name, only=self._ours)

    def preempt(self, name: str, rank: int) -> None:
        """Simulate a preemption now, without notice.

        Raises:
            NotFoundError: There is no such slice.
            UserError: There is no such rank.
        """
        with self._access.open() as cloud:
            look = next((look for look in cloud.live() if look.name == name), None)
            if look is None:
                raise NotFoundError(f"there is no simulated slice '{name}'", "", "orch status")
            if look.phase is not Phase.READY:
                raise ConflictError(
                    f"simulated slice '{name}' is {look.phase}", "only a ready one can be preempted", "orch status"
                )
            if not 0 <= rank < len(look.hosts):
                raise UserError(
                    f"'{name}' has no host {rank}", f"its hosts are 0 to {len(look.hosts) - 1}", "name one of them"
                )
            cloud.preempt(name, rank)
        self.advance()

    def advance(self) -> None:
        """Advance the cloud to now and make its hosts match. Call it regularly.

        Raises:
            OrchError: A host could not be changed.
        """
        with self._access.open() as cloud:
            self._advance(cloud)

    def _advance(self, cloud: SimulatedCloud) -> None:
        for look in cloud.live():
            if look.phase is Phase.READY:
                for rank, step in self._bodies.steps(look).items():
                    cloud.report_step(look.name, rank, step)
        apply_power_requests(cloud, self._bodies)
        self._bodies.sync_hosts(cloud.made())

    def _check_ours(self, cloud: SimulatedCloud, name: str) -> None:
        """Check the labels of a slice, because a name alone proves nothing.

        A resource that is not shown may exist (rule new_resource_may_not_be_shown_yet): then the label condition that
        the call itself carries decides.

        Raises:
            ConflictError: The resource is not ours.
            ApiError: The cloud refused the read.
        """
        try:
            look = cloud.get(name)
        except ApiError as error:
            if error.code is Code.NOT_FOUND:
                return
            raise
        if not self._ours.fits(look.labels):
            raise ConflictError(f"'{name}' was not made by this orch", "its labels are not ours", "it is left as it is")

    def _view(self, cloud: SimulatedCloud, look: Look) -> SliceView:
        if look.phase is not Phase.READY:
            return SliceView(state=_STATES[look.phase], reason=look.reason)
        view = self._bodies.view(look)
        if view.state is SliceState.ABSENT:  # it became ready after its hosts were made to match
            self._bodies.sync_hosts(cloud.made())
            view = self._bodies.view(look)
        return view

    def _not_shown(self, cloud: SimulatedCloud, name: str, error: ApiError) -> SliceView:
        if error.code is not Code.NOT_FOUND:
            return SliceView(state=SliceState.UNCLEAR, reason=f"{error.code}: {error.words}")
        now = cloud.clock.now()
        since = self._missing.setdefault(name, now)
        if now - since < cloud.scenario.lag:
            words = f"it is not shown; that is certain only after {cloud.scenario.lag:.0f} s"
            return SliceView(state=SliceState.UNCLEAR, reason=words)
        return SliceView(state=SliceState.ABSENT)


def open_provider(
    state: Path, _clock: ServerClock | None = None, _records: RecordSource | None = None
) -> SimulatedProvider:
    """Open the cloud in `<state>/simulated`, with real sshd hosts behind its slices.

    Raises:
        OrchError: The folder cannot be used.
    """
    from orchestrator.simulator.bodies import LocalBodies
    from orchestrator.simulator.rehearsal import open_cloud

    folder = state.absolute() / "simulated"
    return SimulatedProvider(open_cloud(folder), LocalBodies(folder))


def format_market(market: Market) -> str:
    """Format a market as the cloud names it.

    Raises:
        UserError: The market is the user's own machines.
    """
    match market:
        case OnDemand():
            return "on-demand"
        case Spot():
            return "spot"
        case Reservation(name) | CapacityBlock(name):
            return RESERVED + name
        case FlexStart():
            return "flex-start"
        case Owned():
            raise UserError("the simulated cloud has no machines that you own", next_step="infra: gcp   or: infra: aws")


def _call(cloud: SimulatedCloud, spec: SliceSpec, keys: SliceKeys) -> CreateCall:
    candidate = spec.candidate
    return CreateCall(
        name=spec.name,
        zone=candidate.zone or _some_zone(cloud, candidate.region),
        accelerator=candidate.accelerator,
        hosts=candidate.hosts,
        token=spec.token.reveal(),
        chips_per_host=candidate.chips_per_host,
        market=format_market(candidate.market),
        labels={key: value.reveal() for key, value in spec.labels},
        extra={"keys": _kept(keys)},
    )


def _kept(keys: SliceKeys) -> dict[str, Any]:
    """Return the SSH keys as data of the create request, like start-up data of a real cloud; see bodies.keys_of."""
    return {
        "user_public": "\n".join(keys.login_keys),
        "identity_file": keys.identity_file,
        "known_hosts": keys.known_hosts,
        "host_private": list(keys.host_private),
        "host_public": list(keys.host_public),
    }


def _some_zone(cloud: SimulatedCloud, region: str) -> str:
    """Return the first zone of the region, or of all."""
    zones = [zone for zone in cloud.scenario.zones if zone.name != ANY]
    return next((zone.name for zone in zones if region in ("", zone.region)), f"{region}-a")


def _listed(cloud: SimulatedCloud) -> list[Look]:
    """List the resources of all pages.

    Raises:
        ApiError: The cloud refused the listing.
        CloudError: The listing is incomplete.
    """
    found: list[Look] = []
    page = ""
    while True:
        answer = cloud.list_page(page)
        if answer.unreachable:
            where = ", ".join(answer.unreachable)
            raise CloudError(
                "the simulated cloud could not list all slices", f"no answer from {where}", "run the same command again"
            )
        found += answer.items
        page = answer.next_page
        if not page:
            return found


@contextmanager
def _explained(verb: str, name: str) -> Generator[None]:
    """Translate an error of the API into an OrchError."""
    try:
        yield
    except ApiError as error:
        raise _error(verb, name, error) from error


def _error(verb: str, name: str, error: ApiError) -> OrchError:
    what = f"{verb} {name}".strip() + " was refused by the simulated cloud"
    why = f"{error.code}: {error.words}"
    match error.code:
        case Code.NO_CAPACITY | Code.NOT_OFFERED:
            return CapacityError(what, why, "try another zone, another market, or later")
        case Code.QUOTA:
            return QuotaError(what, why, "ask for a higher quota, or for fewer hosts")
        case Code.DENIED:
            return AccessError(what, why, "see the faults of the scenario")
        case Code.INVALID:
            return UserError(what, why, "orch accelerators   shows what there is")
        case Code.NOT_FOUND:
            return NotFoundError(what, why, "orch status")
        case Code.ALREADY_EXISTS | Code.TOKEN_MISMATCH | Code.TOKEN_SPENT | Code.WRONG_STATE:
            return ConflictError(what, why, "orch status   then end what is in the way, or take another name")
        case Code.TIMEOUT:
            what = f"{verb} {name}".strip() + ": no answer from the simulated cloud"
            return CloudError(what, "it is not known whether it acted", "run the same command again")
        case Code.THROTTLED | Code.INTERNAL | Code.UNAVAILABLE:
            return CloudError(what, why, "run the same command again")
