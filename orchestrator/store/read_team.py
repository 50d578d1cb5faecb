"""What a reader says of a team: who is admitted where, owners of slices, and what members asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NotFoundError
from orchestrator.hosts import HostPin
from orchestrator.plan.observed import Intent
from orchestrator.store.conditions import where_in
from orchestrator.store.records import ClusterRecord, host_pin_from_row

if TYPE_CHECKING:
    from orchestrator.plan.spending_budget import SpendingBudget
    from orchestrator.store.access_records import AccessGrant
    from orchestrator.store.admission_records import AdmissionRecord, SliceOwner
    from orchestrator.store.bill_records import BillRecord, BlockRecord, PredictionRecord
    from orchestrator.store.channel_records import ChannelRecord
    from orchestrator.store.order_records import OrderRecord
    from orchestrator.store.session_records import InvitationRecord, SessionRecord, SignInRecord
    from orchestrator.store.setting_records import ProjectSetting
    from orchestrator.store.token_records import TokenRecord
    from orchestrator.store.trust_records import TrustRule


class TeamReads(ABC):
    """The part of a reader that concerns a team."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    @abstractmethod
    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return the open clusters of all projects."""

    @abstractmethod
    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        """Return the intents of a cluster by generation."""

    def find_order(self, uid: str) -> OrderRecord | None:
        """Return one order of a member, or None."""
        from orchestrator.store.order_records import order_from_row

        return next(map(order_from_row, self._rows("SELECT * FROM orders WHERE uid = ?", uid)), None)

    def order(self, uid: str) -> OrderRecord:
        """Return one order of a member. Raises NotFoundError when there is none."""
        if (found := self.find_order(uid)) is not None:
            return found
        raise NotFoundError(f"no order {uid}", next_step="orch events")

    def access_grants(self, since: float) -> tuple[AccessGrant, ...]:
        """Return what members asked for after a time to log in to hosts, oldest first, also what no longer counts."""
        from orchestrator.store.access_records import ACCESS, access_from_order
        from orchestrator.store.order_records import order_from_row

        query = "SELECT * FROM orders WHERE verb = ? AND created > ? ORDER BY created, uid"
        return tuple(access_from_order(order_from_row(row)) for row in self._rows(query, ACCESS, since))

    def find_token(self, digest: str) -> TokenRecord | None:
        """Return the token of a digest, or None."""
        from orchestrator.store.token_records import token_from_row

        return next(map(token_from_row, self._rows("SELECT * FROM tokens WHERE digest = ?", digest)), None)

    def tokens(self) -> tuple[TokenRecord, ...]:
        """Return all tokens, oldest first."""
        from orchestrator.store.token_records import token_from_row

        return tuple(map(token_from_row, self._rows("SELECT * FROM tokens ORDER BY created, digest")))

    def trust_rules(self, issuer: str = "") -> tuple[TrustRule, ...]:
        """Return the trust rules of an issuer, or all, oldest first."""
        from orchestrator.store.trust_records import trust_rule_from_row

        query = "SELECT * FROM trust_rules WHERE issuer = ? OR ? = '' ORDER BY created, uid"
        return tuple(map(trust_rule_from_row, self._rows(query, issuer, issuer)))

    def find_trust_rule(self, uid: str) -> TrustRule | None:
        """Return one trust rule, or None."""
        from orchestrator.store.trust_records import trust_rule_from_row

        return next(map(trust_rule_from_row, self._rows("SELECT * FROM trust_rules WHERE uid = ?", uid)), None)

    def owner_names(self) -> tuple[str, ...]:
        """Return who has or had a cluster."""
        rows = self._rows("SELECT DISTINCT owner FROM clusters WHERE owner <> '' ORDER BY owner")
        return tuple(str(row["owner"]) for row in rows)

    def project_names(self) -> tuple[str, ...]:
        """Return the projects that have or had a cluster, a budget or a token; "" is the default one."""
        query = "SELECT project FROM clusters UNION SELECT project FROM budgets UNION SELECT project FROM tokens"
        rows = self._rows(f"{query} ORDER BY project")
        return tuple(str(row["project"]) for row in rows)

    def projects_of_member(self, member: str) -> frozenset[str]:
        """Return the projects of what lets or let a member in, and of their clusters; "" is every project."""
        query = (
            "SELECT project FROM tokens WHERE member = ? UNION SELECT project FROM invitations WHERE member = ? "
            "UNION SELECT project FROM trust_rules WHERE member = ? UNION SELECT '' FROM sign_ins WHERE member = ? "
            "UNION SELECT CASE project WHEN '' THEN 'default' ELSE project END FROM clusters WHERE owner = ?"
        )
        return frozenset(str(row["project"]) for row in self._rows(query, *[member] * 5))

    def has_acted(self, member: str) -> bool:
        """Whether an event is of a member."""
        query = "SELECT seq FROM events WHERE actor = ? OR substr(actor, 1, ?) = ? LIMIT 1"
        return any(True for _ in self._rows(query, member, len(member) + 1, f"{member}@"))

    def budgets(self) -> tuple[SpendingBudget, ...]:
        """Return the budgets that count, by project and member."""
        from orchestrator.store.budget_records import budget_from_row

        query = "SELECT * FROM budgets WHERE removed IS NULL ORDER BY project, member"
        return tuple(map(budget_from_row, self._rows(query)))

    def project_settings(self) -> tuple[ProjectSetting, ...]:
        """Return the settings of all projects."""
        from orchestrator.store.setting_records import ProjectSetting

        query = "SELECT project, key, value FROM project_settings WHERE value <> '' ORDER BY project, key"
        return tuple(ProjectSetting(**row) for row in self._rows(query))

    def bills(self, uids: Collection[str] | None = None) -> tuple[BillRecord, ...]:
        """Return what bills say of the slices of these clusters, or of all, by line."""
        from orchestrator.store.bill_records import bill_from_row

        only, values = where_in("cluster_uid", uids)
        slices = "" if uids is None else f"WHERE token IN (SELECT token FROM intents WHERE {only}) "  # noqa: S608  # constant parts
        return tuple(map(bill_from_row, self._rows(f"SELECT * FROM bills {slices}ORDER BY line", *values)))  # noqa: S608  # the same

    def blocks(self) -> tuple[BlockRecord, ...]:
        """Return the blocks that were bought, in order."""
        from orchestrator.store.bill_records import block_from_row

        return tuple(map(block_from_row, self._rows("SELECT * FROM blocks ORDER BY bought, block_id")))

    def predictions(self) -> tuple[PredictionRecord, ...]:
        """Return what was estimated for runs, in order."""
        from orchestrator.store.bill_records import prediction_from_row

        return tuple(map(prediction_from_row, self._rows("SELECT * FROM predictions ORDER BY at, run_id")))

    def run_key(self, run_id: str) -> str:
        """Return the key of a run, a secret; "" where this store has none."""
        rows = self._rows("SELECT key FROM run_keys WHERE run_id = ?", run_id)
        return next((str(row["key"]) for row in rows), "")

    def trusted_checkpoints(self, run_id: str) -> tuple[str, ...]:
        """Return the SHA-256 of the manifests of a run to which someone agreed, the newest consents first."""
        query = "SELECT digest FROM trusted_checkpoints WHERE run_id = ? ORDER BY at DESC, digest"
        return tuple(str(row["digest"]) for row in self._rows(query, run_id))

    def find_prediction(self, run_id: str) -> PredictionRecord | None:
        """Return what was estimated for a run, or None."""
        from orchestrator.store.bill_records import prediction_from_row

        rows = self._rows("SELECT * FROM predictions WHERE run_id = ?", run_id)
        return next(map(prediction_from_row, rows), None)

    def stopped_times(
        self, now: float, clusters: Collection[ClusterRecord] | None = None
    ) -> dict[str, tuple[tuple[float, float], ...]]:
        """Return when the machines of clusters were stopped, by the cluster's uid, as pairs of epoch seconds.

        From the observation that they are stopped to the request to start them, or the observation that they are not:
        what a cloud charges ends and begins with these. A request to stop them may fail, and ends nothing.

        Args:
            now: The end of those that are stopped still.
            clusters: Whose; None for all, for which the whole history is read.
        """
        only, values = "kind", tuple[str, ...]()
        if clusters is not None:
            if not clusters:
                return {}
            values = tuple(sorted({one.qualified_name for one in clusters}))
            # By the index of clusters: SQLite would take that of kinds, where the whole history is.
            only = f"cluster IN ({', '.join('?' * len(values))}) AND kind || ''"
        query = f"SELECT subject, cause, kind, at, what FROM events WHERE {only} IN ('observed', 'wanted') ORDER BY seq"  # noqa: S608  # constant parts
        uids = None if clusters is None else {one.uid for one in clusters}
        begun: dict[str, float] = {}
        found: dict[str, tuple[tuple[float, float], ...]] = {}
        for row in self._rows(query, *values):
            observed = row["kind"] == "observed"
            uid = str(row["cause"] if observed else row["subject"]).partition(" ")[2]
            if uids is not None and uid not in uids:
                continue  # of an earlier cluster of the name
            if observed and row["what"] == "stopped":
                begun.setdefault(uid, float(row["at"]))
            elif row["what"] in ("running", "up") and uid in begun:
                found[uid] = (*found.get(uid, ()), (begun.pop(uid), float(row["at"])))
        return found | {uid: (*found.get(uid, ()), (at, now)) for uid, at in begun.items()}

    def find_session(self, digest: str) -> SessionRecord | None:
        """Return the session of a digest, or None."""
        from orchestrator.store.session_records import SessionRecord, from_row

        rows = self._rows("SELECT * FROM sessions WHERE digest = ?", digest)
        return next((from_row(SessionRecord, row) for row in rows), None)

    def has_entry_code(self, digest: str) -> bool:
        """Whether a secret that works once is kept, also one that is too old."""
        return any(True for _ in self._rows("SELECT digest FROM entry_codes WHERE digest = ?", digest))

    def find_sign_in(self, identity: str) -> SignInRecord | None:
        """Return the sign-in of a person of an identity provider, or None."""
        from orchestrator.store.session_records import SignInRecord, from_row

        rows = self._rows("SELECT * FROM sign_ins WHERE identity = ?", identity)
        return next((from_row(SignInRecord, row) for row in rows), None)

    def sign_ins(self) -> tuple[SignInRecord, ...]:
        """Return all sign-ins, by member."""
        from orchestrator.store.session_records import SignInRecord, from_row

        return tuple(from_row(SignInRecord, row) for row in self._rows("SELECT * FROM sign_ins ORDER BY member"))

    def invitations(self) -> tuple[InvitationRecord, ...]:
        """Return all invitations, oldest first."""
        from orchestrator.store.session_records import InvitationRecord, from_row

        rows = self._rows("SELECT * FROM invitations ORDER BY created, digest")
        return tuple(from_row(InvitationRecord, row) for row in rows)

    def newest_orders(self, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders, newest first."""
        from orchestrator.store.order_records import order_from_row

        rows = self._rows("SELECT * FROM orders ORDER BY created DESC, uid LIMIT ?", limit)
        return tuple(order_from_row(row) for row in rows)

    def notification_channels(self) -> tuple[ChannelRecord, ...]:
        """Return how far each notification channel is, by name."""
        from orchestrator.store.channel_records import channel_from_row

        return tuple(map(channel_from_row, self._rows("SELECT * FROM notification_channels ORDER BY name")))

    def admissions(self, cluster_uid: str, generation: int) -> tuple[AdmissionRecord, ...]:
        """Return what lets computers in to the hosts of one slice."""
        from orchestrator.store.admission_records import admission_from_row

        query = "SELECT * FROM admissions WHERE cluster_uid = ? AND generation = ? ORDER BY computer, address"
        return tuple(map(admission_from_row, self._rows(query, cluster_uid, generation)))

    def host_pin(self, name: str) -> HostPin | None:
        """Return the pin of one of people's own machines, or None; see HostAddress.pin_name."""
        for row in self._rows("SELECT * FROM host_pins WHERE name = ?", name):
            return host_pin_from_row(row)
        return None

    def slice_owner(self, token: str) -> SliceOwner | None:
        """Return who has a slice, if it ever changed hands."""
        from orchestrator.store.admission_records import slice_owner_from_row

        query = "SELECT * FROM slice_owners WHERE token = ?"
        return next(map(slice_owner_from_row, self._rows(query, token)), None)
