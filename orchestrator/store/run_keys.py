"""The secret of each run, by which its ranks recognise what they left in the bucket, and that of sign-ins."""

from __future__ import annotations

import secrets

from sqlalchemy import select

from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import run_keys

_BYTES = 32
_SIGN_INS = "sign-ins of the service"  # in place of a run's id, which has no blanks


class RunKeys(Ledger):
    """The keys of runs. They are secrets: no event, preview, log or bucket has them."""

    def sign_in_key(self) -> bytes:
        """Return the key by which all servers of a store sign attempts to sign in, made the first time."""
        return bytes.fromhex(self.run_key(_SIGN_INS))

    def run_key(self, run_id: str) -> str:
        """Return the key of a run in hexadecimal digits, made the first time."""
        query = select(run_keys.c.key).where(run_keys.c.run_id == run_id)
        with self._database.reading() as tx:
            found = tx.execute(query).scalar()
        if found is not None:
            return str(found)
        with self._database.writing() as tx:  # of two computers that make one at the same time, the first one's holds
            tx.execute(insert_or_nothing(tx, run_keys, {"run_id": run_id, "key": secrets.token_hex(_BYTES)}))
            made = str(tx.execute(query).scalar_one())
            tx.commit()
        return made
