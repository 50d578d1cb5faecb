"""The provider "simulated": providers.protocol.Provider, Stops and Preempts over the simulated cloud."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Label, Look
from orchestrator.simulator.capacity import RESERVED
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import ANY
from orchestrator.simulator.state import Phase
from orchestrator.slices import (
    CapacityBlock,
    FlexStart,
    Market,
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
    """See providers/protocol.py. Forgets nothing that matters: `missing` only says since when a name is not shown.

    installation: end, stop and start only what carries its label; "" = any installation's.
    """

    name = "simulated"

    def __init__(self, access: Access, bodies: Bodies, installation: str = "") -> None:
        self._ours = Label(INSTALLATION_LABEL, installation)
        self._access = access
        self._bodies = bodies
        self._missing: dict[str, float] = {}

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Returns when the cloud has accepted it. Sends one request; the engine says whether it is sent again."""
        self._bodies.check()
        self._missing.pop(spec.name, None)  # first: a create without an answer may have acted, and be shown late
        with self._access.open() as cloud, _explained("create", spec.name):
            cloud.create(_call(cloud, spec, keys))

    def observe(self, name: str, token: str = "") -> SliceView:
        """ABSENT once the cloud has not shown it for longer than its looks may lag behind."""
        try:
            with self._access.open() as cloud:
                self._settle(cloud)
                try:
                    look = cloud.get(name)
                except ApiError as error:
                    return self._not_shown(cloud, name, error)
                self._missing.pop(name, None)
                return self._view(cloud, look)
        except OrchError as error:
            return SliceView(SliceState.UNCLEAR, reason=str(error))

    def end(self, name: str, token: str = "") -> None:
        """Raises ConflictError for a resource that orch has not made."""
        with self._access.open() as cloud, _explained("end", name):
            self._check_ours(cloud, name)
            try:
                cloud.end(name, only=self._ours)
            except ApiError as error:
                if error.code is not Code.NOT_FOUND:
                    raise
        self.settle()

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Raises CloudError when the listing is not whole."""
        found: list[OwnedSlice] = []
        with self._access.open() as cloud, _explained("list", ""):
            for look in _listed(cloud):
                if look.labels.get(INSTALLATION_LABEL) == installation and look.phase is not Phase.ABSENT:
                    cluster = look.labels.get(CLUSTER_LABEL, "")
                    where = f"{self.name}/{look.zone}"
                    state = _STATES[look.phase]
                    intent = look.labels.get(INTENT_LABEL, "")
                    found.append(OwnedSlice(look.name, cluster, installation, state, look.created, where, intent))
        return tuple(found)

    def stop(self, name: str) -> None:
        with self._access.open() as cloud, _explained("stop", name):
            self._check_ours(cloud, name)
            cloud.stop(name, only=self._ours)
        self.settle()

    def start(self, name: str) -> None:
        with self._access.open() as cloud, _explained("start", name):
            self._check_ours(cloud, name)
            cloud.start(name, only=self._ours)

    def preempt(self, name: str, rank: int) -> None:
        """Play a preemption now, without notice. Raises NotFoundError, UserError for a rank that is not there."""
        with self._access.open() as cloud:
            look = next((look for look in cloud.live() if look.name == name), None)
            if look is None:
                raise NotFoundError(f"there is no simulated slice '{name}'", "", "orch status")
            if look.phase is not Phase.READY:
                raise ConflictError(f"simulated slice '{name}' is {look.phase}", "only a ready one can be preempted")
            if not 0 <= rank < len(look.hosts):
                raise UserError(f"'{name}' has no host {rank}", f"its hosts are 0 to {len(look.hosts) - 1}")
            cloud.preempt(name, rank)
        self.settle()

    def settle(self) -> None:
        """Let the time pass and bring what stands behind the slices in line. Call it now and then. Raises OrchError."""
        with self._access.open() as cloud:
            self._settle(cloud)

    def _settle(self, cloud: SimulatedCloud) -> None:
        for look in cloud.live():
            if look.phase is Phase.READY:
                for rank, step in self._bodies.steps(look).items():
                    cloud.report_step(look.name, rank, step)
        self._bodies.settle(cloud.made())

    def _check_ours(self, cloud: SimulatedCloud, name: str) -> None:
        """A name alone proves nothing. Raises ConflictError, ApiError.

        What is not shown may yet be there (rule new_resource_may_not_be_shown_yet): then the condition on the label,
        which goes with the call itself, decides.
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
            return SliceView(_STATES[look.phase], reason=look.reason)
        return self._bodies.view(look)

    def _not_shown(self, cloud: SimulatedCloud, name: str, error: ApiError) -> SliceView:
        if error.code is not Code.NOT_FOUND:
            return SliceView(SliceState.UNCLEAR, reason=f"{error.code}: {error.words}")
        now = cloud.clock.now()
        since = self._missing.setdefault(name, now)
        if now - since < cloud.scenario.lag:
            words = f"it is not shown; that is certain only after {cloud.scenario.lag:.0f} s"
            return SliceView(SliceState.UNCLEAR, reason=words)
        return SliceView(SliceState.ABSENT)


def open_provider(state: Path) -> SimulatedProvider:
    """The cloud in `<state>/simulated`, with real sshd hosts behind its slices. Raises OrchError."""
    from orchestrator.simulator.bodies import LocalBodies
    from orchestrator.simulator.rehearsal import open_cloud

    folder = state.absolute() / "simulated"
    return SimulatedProvider(open_cloud(folder), LocalBodies(folder))


def market_word(market: Market) -> str:
    """How the cloud names a market. Raises UserError for machines of the user's own."""
    if isinstance(market, Spot):
        return "spot"
    if isinstance(market, Reservation):
        return RESERVED + market.name
    if isinstance(market, CapacityBlock):
        return RESERVED + market.reservation_id
    if isinstance(market, FlexStart):
        return "flex-start"
    if isinstance(market, Owned):
        raise UserError("the simulated cloud rents machines; it has none of your own")
    return "on-demand"


def _call(cloud: SimulatedCloud, spec: SliceSpec, keys: SliceKeys) -> CreateCall:
    candidate = spec.candidate
    return CreateCall(
        name=spec.name,
        zone=candidate.zone or _some_zone(cloud, candidate.region),
        accelerator=candidate.accelerator,
        hosts=candidate.hosts,
        token=spec.token.reveal(),
        chips_per_host=candidate.chips_per_host,
        market=market_word(candidate.market),
        labels={key: value.reveal() for key, value in spec.labels},
        extra={"keys": _kept(keys)},
    )


def _kept(keys: SliceKeys) -> dict[str, Any]:
    """Travels with the create, as start-up data does at a real cloud; see bodies.keys_of."""
    return {
        "user_public": keys.user_public,
        "identity_file": keys.identity_file,
        "known_hosts": keys.known_hosts,
        "host_private": list(keys.host_private),
        "host_public": list(keys.host_public),
    }


def _some_zone(cloud: SimulatedCloud, region: str) -> str:
    """The first zone of the region, or of all."""
    zones = [zone for zone in cloud.scenario.zones if zone.name != ANY]
    return next((zone.name for zone in zones if region in ("", zone.region)), f"{region}-a")


def _listed(cloud: SimulatedCloud) -> list[Look]:
    """All pages. Raises ApiError, CloudError."""
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
    """An answer of the API as an error of ours."""
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
