"""The changes of what lets keys and addresses in to the hosts of a slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, select, update

from orchestrator.store.admission_records import AdmissionRecord, admission_from_row
from orchestrator.store.audited import clean_text
from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.ledger import Ledger
from orchestrator.store.meta_rows import SERVERS_KEY, read_meta, write_meta
from orchestrator.store.schema import admissions, clusters, meta


class AdmissionChanges(Ledger):
    """The changes of admissions."""

    def keep_servers_key(self, public_key: str) -> str:
        """Record the key with which this server enters hosts, and return the one that counts: the first one's.

        Another one takes its place where no cluster is open.
        """
        with self._database.writing() as tx:
            tx.execute(insert_or_nothing(tx, meta, {"key": SERVERS_KEY, "value": public_key}))
            has_open = select(clusters.c.uid).where(clusters.c.gone.is_(None)).limit(1)
            if tx.execute(has_open).first() is None:
                write_meta(tx, SERVERS_KEY, public_key)
            kept = read_meta(tx)[SERVERS_KEY]
            tx.commit()
        return kept

    def admissions(self, cluster_uid: str, generation: int) -> tuple[AdmissionRecord, ...]:
        """Return what lets computers in to the hosts of one slice."""
        query = select(admissions).where(_of_slice(cluster_uid, generation))
        return self._read_all(query.order_by(admissions.c.computer, admissions.c.address), admission_from_row)

    def note_admitted_keys(
        self, cluster_uid: str, generation: int, untils: Mapping[str, float], *, alone: bool
    ) -> None:
        """Record until when computers have their keys on the hosts, by uid; alone: only these."""
        given, at = {clean_text(uid): until for uid, until in untils.items()}, self._now()
        with self._database.writing() as tx:
            keys = _of_slice(cluster_uid, generation) & (admissions.c.address == "") & (admissions.c.until > 0)
            ours = keys if alone else keys & admissions.c.computer.in_(tuple(given))
            tx.execute(delete(admissions).where(ours))
            for uid, until in given.items():
                _admit(tx, at, cluster_uid, generation, uid, "", until, confirmed=at if alone else 0.0)
            tx.commit()

    def note_admission(
        self, cluster_uid: str, generation: int, uid: str, address: str, until: float, *, confirmed: bool
    ) -> None:
        """Record that a computer is, or is about to be, admitted at an address; "" for its key from the create on."""
        address, now = clean_text(address), self._now()
        with self._database.writing() as tx:
            which = _of_slice(cluster_uid, generation) & and_(
                admissions.c.computer == uid, admissions.c.address == address
            )
            at = now if confirmed else 0.0
            _admit(tx, now, cluster_uid, generation, uid, address, until, confirmed=at)
            tx.execute(update(admissions).where(which).values(at=now, until=until, confirmed=at))
            tx.commit()

    def drop_admission(self, one: AdmissionRecord) -> None:
        """Delete what no longer lets anyone in."""
        which = and_(admissions.c.computer == one.computer, admissions.c.address == one.address)
        self._database.write(delete(admissions).where(_of_slice(one.cluster_uid, one.generation), which))


def _of_slice(cluster_uid: str, generation: int) -> Any:
    return and_(admissions.c.cluster_uid == cluster_uid, admissions.c.generation == generation)


def _admit(
    tx: Connection,
    at: float,
    cluster_uid: str,
    generation: int,
    uid: str,
    address: str,
    until: float,
    *,
    confirmed: float,
) -> None:
    values = {
        "cluster_uid": cluster_uid,
        "generation": generation,
        "computer": uid,
        "address": address,
        "at": at,
        "until": until,
        "confirmed": confirmed,
    }
    tx.execute(insert_or_nothing(tx, admissions, values))
