"""The local provider: slices of sshd hosts on this computer, as folders under `<state>/local`.

Everything asked of it can be asked again after a crash at any point: a create with the same token completes the
slice, an end or a stop finishes what was begun.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

from orchestrator.clock import ServerClock
from orchestrator.computer import read_computer
from orchestrator.errors import CloudError, ConflictError, NotFoundError, OtherAccountError, UserError
from orchestrator.hosts import HostAddress
from orchestrator.providers.core.listed import read_owner
from orchestrator.providers.local import machines, processes
from orchestrator.providers.local.addresses import choose_places
from orchestrator.providers.local.layout import SlicePaths
from orchestrator.providers.local.record import (
    Phase,
    SliceRecord,
    claimed,
    is_busy,
    locked,
    read_record,
    remove_folder,
    remove_tree,
    write_record,
)
from orchestrator.providers.local.sshd import Account, Sshd, account, find_sshd
from orchestrator.providers.records import RecordSource, check_slice_name
from orchestrator.slices import (
    Candidate,
    OnDemand,
    OwnedSlice,
    RecoveredSlice,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
)

_INSTALLATION = "orch-installation"
_EPOCH = "orch-epoch"


def open_provider(
    state: Path, _clock: ServerClock | None = None, _records: RecordSource | None = None
) -> LocalProvider:
    """What runs on this computer is recorded on it."""
    return LocalProvider(state)


class LocalProvider:
    """See providers/protocol.py. Serves also `Stops` and `Preempts`."""

    name = "local"

    def __init__(self, state: Path) -> None:
        self._root = state.absolute() / "local"
        self._state = state.absolute()

    def account(self, candidate: Candidate) -> str:
        """See protocol.HasAccounts: this computer and this folder."""
        here = read_computer(self._state)
        return f"local:{here.id}:{here.host}"

    def within(self, account: str, candidate: Candidate) -> LocalProvider:
        """See protocol.HasAccounts."""
        if self.account(candidate) != account:
            raise OtherAccountError(
                f"these hosts are processes on computer '{account.rpartition(':')[2]}', or of another ORCH_HOME there",
                f"they cannot be seen from here, in {self._state}; nothing was changed",
                "run the same command there   or, if that computer or folder is lost: orch down CLUSTER --abandon",
            )
        return self

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Returns when every host listens. Raises UserError without sshd, ConflictError for another token."""
        _check(spec, keys)
        sshd, who = find_sshd(), account()
        paths = self._paths(spec.name)
        with _explained(spec.name):
            new = _new_record(spec, keys, who.name)
            with claimed(paths) as lock:
                _complete(paths, new, keys, sshd, who, lock)

    def observe(self, name: str, token: str = "") -> SliceView:
        paths = self._paths(name)
        try:
            while True:
                busy = is_busy(paths)
                record = read_record(paths)
                view = _view(paths, record, busy=busy)
                if read_record(paths) == record and is_busy(paths) == busy:  # nothing changed while we looked
                    other = record is not None and token not in ("", record.token)
                    if other or record is None:
                        return SliceView(state=SliceState.ABSENT) if other else view
                    return replace(view, installation=read_owner(record.labels).installation)
        except (OSError, ValueError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=f"{paths.path} cannot be read: {error}")

    def end(self, name: str, token: str = "") -> None:
        """Returns when the slice is gone. Raises CloudError for a process or a file that stays."""
        paths = self._paths(name)
        with _explained(name), locked(paths) as lock:
            if lock is None:
                return
            record = _read(paths)
            if record is not None and token not in ("", record.token):
                return  # another slice has the name by now
            if record is not None:
                write_record(paths, replace(record, phase=Phase.ENDING))
                machines.end_hosts(paths, record, record.ranks)
            remove_folder(paths)
        with suppress(OSError):  # other slices are still there
            self._root.rmdir()

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        found: list[OwnedSlice] = []
        for paths in self._slices():
            record = _read(paths)
            owner = read_owner({} if record is None else record.labels)
            if record is None or not owner.installation or installation not in ("", owner.installation):
                continue
            found.append(
                OwnedSlice(
                    name=record.name,
                    cluster=record.cluster,
                    installation=owner.installation,
                    state=self.observe(record.name).state,
                    created=record.created,
                    where=self.name,
                    intent=owner.intent,
                    project=owner.project,
                    member=owner.member,
                )
            )
        return tuple(found)

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """See protocol.Recovers: the record lies beside the hosts."""
        record = _read(self._paths(found.name))
        if record is None or record.token != found.intent:
            raise NotFoundError(f"there is no local slice '{found.name}'", "", "orch recover")
        owner = read_owner(record.labels)
        return RecoveredSlice(
            candidate=Candidate(
                provider=self.name,
                accelerator=f"local:{len(record.places)}",
                hosts=len(record.places),
                chips_per_host=0,
                market=OnDemand(),
                price_per_hour=0.0,
            ),
            installation=owner.installation,
            epoch=owner.epoch,
            host_public=record.host_public,
        )

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """See protocol.Recovers."""
        with self._existing(found.name) as (paths, record, _):
            labels = {**record.labels, _INSTALLATION: installation, _EPOCH: str(epoch)}
            write_record(paths, replace(record, labels=labels))

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """See protocol.Recovers: the hosts admit the key that made them, which lies in the same folder."""
        with self._existing(found.name) as (paths, record, _):
            write_record(paths, replace(record, identity_file=keys.identity_file, known_hosts=keys.known_hosts))

    def stop(self, name: str) -> None:
        """End the hosts, keep their homes. Raises NotFoundError, ConflictError."""
        with self._existing(name) as (paths, record, _):
            if record.phase is Phase.STOPPED:
                return
            if record.preempted or record.phase not in (Phase.RUNNING, Phase.STARTING, Phase.STOPPING):
                raise _refusal(record)
            write_record(paths, replace(record, phase=Phase.STOPPING))
            machines.end_hosts(paths, record, record.ranks)
            write_record(paths, replace(record, phase=Phase.STOPPED))

    def start(self, name: str) -> None:
        """Start stopped hosts in their old homes. Returns when every host listens."""
        sshd, who = find_sshd(), account()
        with self._existing(name) as (paths, record, lock):
            if record.phase is Phase.RUNNING and not record.preempted:
                return
            if record.preempted or record.phase not in (Phase.STOPPED, Phase.STOPPING, Phase.STARTING):
                raise _refusal(record)
            starting = replace(record, phase=Phase.STARTING)
            write_record(paths, starting)
            missing = [rank for rank in record.ranks if not machines.is_up(paths.host(rank))]
            if missing:
                starting = machines.start_hosts(paths, starting, missing, sshd, who, lock)
            write_record(paths, replace(starting, phase=Phase.RUNNING))

    def preempt(self, name: str, rank: int) -> None:
        """Take one host away, hard. The slice is PREEMPTED from the first moment on."""
        with self._existing(name) as (paths, record, _):
            if rank not in record.ranks:
                raise UserError(
                    f"'{name}' has no host {rank}", f"its hosts are 0 to {len(record.places) - 1}", "name one of them"
                )
            if record.phase is not Phase.RUNNING:
                raise _refusal(record)
            if rank not in record.preempted:
                write_record(paths, replace(record, preempted=(*record.preempted, rank)))
            machines.end_hosts(paths, record, [rank])

    def _slices(self) -> list[SlicePaths]:
        try:
            return [SlicePaths(path) for path in sorted(self._root.iterdir()) if path.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError(
                "the local slices cannot be listed", str(error), f"ls -l {quote(str(self._root))}"
            ) from error

    @contextmanager
    def _existing(self, name: str) -> Generator[tuple[SlicePaths, SliceRecord, int]]:
        """Hold the lock of a slice that must be there."""
        paths = self._paths(name)
        with _explained(name), locked(paths) as lock:
            record = None if lock is None else _read(paths)
            if lock is None or record is None:
                raise NotFoundError(f"there is no local slice '{name}'", "", "orch status")
            yield paths, record, lock

    def _paths(self, name: str) -> SlicePaths:
        return SlicePaths(self._root / check_slice_name(name))


def _check(spec: SliceSpec, keys: SliceKeys) -> None:
    count = spec.candidate.hosts
    if count < 1:
        raise UserError(f"'{spec.cluster}' asks for {count} hosts", "at least one is needed", "infra: local:1")
    if not len(keys.host_private) == len(keys.host_public) == count:
        raise ValueError(f"{count} hosts need a key pair each, there are {len(keys.host_private)}")


@contextmanager
def _explained(name: str) -> Generator[None]:
    """A full disk, a folder that is not ours: told as what it is."""
    try:
        yield
    except OSError as error:
        raise CloudError(
            f"local slice '{name}' cannot be changed", str(error), "fix that, then run the same command again"
        ) from error


def _complete(paths: SlicePaths, new: SliceRecord, keys: SliceKeys, sshd: Sshd, who: Account, lock: int) -> None:
    """Whatever an earlier try has left: all hosts up, then the record says so."""
    record = _claim(paths, new)
    if record.phase is not Phase.CREATING:
        return
    for rank in record.ranks:
        machines.write_host(paths, record, rank, keys.host_private[rank])
    missing = [rank for rank in record.ranks if not machines.is_up(paths.host(rank))]
    if missing:
        record = machines.start_hosts(paths, record, missing, sshd, who, lock)
    write_record(paths, replace(record, phase=Phase.RUNNING))


def _claim(paths: SlicePaths, new: SliceRecord) -> SliceRecord:
    """The record of this slice: ours from an earlier try, or the new one. Raises ConflictError for somebody else's."""
    found = _read(paths)
    if found is None:
        remove_tree(paths.hosts)  # nothing was ever started in it
    elif found.token != new.token or found.phase is Phase.ENDING:
        why = "it is being ended" if found.token == new.token else "it was made for another request"
        raise ConflictError(
            f"a local slice '{new.name}' exists already", why, f"orch down {found.cluster}   then try again"
        )
    elif _same_request(found, new):
        return found
    elif found.phase is not Phase.CREATING:
        raise ConflictError(
            f"a local slice '{new.name}' exists already",
            "it was made by this request with other keys, labels or number of hosts",
            f"orch down {found.cluster}   then try again",
        )
    else:  # a create was killed and its keys are lost: nobody can have used these hosts
        machines.end_hosts(paths, found, found.ranks)
        remove_tree(paths.hosts)
    write_record(paths, new)
    return new


def _new_record(spec: SliceSpec, keys: SliceKeys, user: str) -> SliceRecord:
    token, unique = spec.token.reveal(), uuid.uuid4().hex
    return SliceRecord(
        name=spec.name,
        cluster=spec.cluster,
        token=token,
        id=unique,
        created=time.time(),
        phase=Phase.CREATING,
        labels={key: value.reveal() for key, value in spec.labels},
        user=user,
        user_public=keys.user_public,
        identity_file=keys.identity_file,
        known_hosts=keys.known_hosts,
        host_public=keys.host_public,
        places=choose_places(unique, spec.candidate.hosts),
    )


def _same_request(old: SliceRecord, new: SliceRecord) -> bool:
    return replace(new, id=old.id, created=old.created, phase=old.phase, places=old.places) == replace(
        old, preempted=()
    ) and len(old.places) == len(new.places)


def _read(paths: SlicePaths) -> SliceRecord | None:
    try:
        return read_record(paths)
    except (OSError, ValueError) as error:
        raise CloudError(
            f"the record of local slice '{paths.path.name}' cannot be read", str(error), f"see {paths.record}"
        ) from error


def _refusal(record: SliceRecord) -> ConflictError:
    what = "preempted" if record.preempted else str(record.phase)
    return ConflictError(
        f"local slice '{record.name}' is {what}", "that cannot be done to it now", f"orch status {record.cluster}"
    )


def _view(paths: SlicePaths, record: SliceRecord | None, *, busy: bool) -> SliceView:
    """busy: somebody holds the slice's lock. What was begun and left by a killed command is not called -ING."""
    if record is None:
        return _without_record(paths)
    find = processes.make_finder()
    up = [rank for rank in record.ranks if machines.is_up(paths.host(rank), find)]
    counted = f"{len(up)} of {len(record.places)} hosts are up"
    match record.phase:
        case Phase.CREATING:
            left = "" if busy else "; the command that made them has ended; the same create continues"
            return SliceView(state=SliceState.CREATING, reason=counted + left)
        case Phase.RUNNING:
            return _running(record, up)
        case Phase.STARTING if busy:
            return SliceView(state=SliceState.STARTING, reason=counted)
        case Phase.STOPPING if busy or up:
            return SliceView(state=SliceState.STOPPING, reason=counted)
        case Phase.ENDING if busy:
            return SliceView(state=SliceState.ENDING, reason=counted)
        case Phase.ENDING:
            return SliceView(state=SliceState.FAILED, reason="its end was interrupted; orch down ends it")
        case Phase.STARTING | Phase.STOPPING | Phase.STOPPED:
            return SliceView(state=SliceState.STOPPED)


def _without_record(paths: SlicePaths) -> SliceView:
    try:
        paths.path.stat()
    except FileNotFoundError:
        return SliceView(state=SliceState.ABSENT)
    return SliceView(state=SliceState.CREATING, reason="its folder is made, nothing has been started yet")


def _running(record: SliceRecord, up: list[int]) -> SliceView:
    gone = [rank for rank in record.ranks if rank not in up or rank in record.preempted]
    if gone:
        which = ", ".join(map(str, gone[:8])) + (", …" if len(gone) > 8 else "")
        how = "taken away" if record.preempted else "found dead"
        return SliceView(state=SliceState.PREEMPTED, reason=f"host {which} of {len(record.places)} {how}")
    return SliceView(state=SliceState.READY, hosts=tuple(_address(record, rank) for rank in record.ranks))


def _address(record: SliceRecord, rank: int) -> HostAddress:
    place = record.places[rank]
    return HostAddress(
        rank=rank,
        alias=record.alias(rank),
        host=place.host,
        port=place.port,
        user=record.user,
        identity_file=Path(record.identity_file),
        known_hosts=Path(record.known_hosts),
        internal_ip=place.host,
        host_key=" ".join(record.host_public[rank].split()[:2]),
    )
