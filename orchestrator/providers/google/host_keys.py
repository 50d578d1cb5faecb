"""Hold a slice back until its hosts report, in their guest attributes, that they have the SSH keys that orch gave them.

To connect to a host earlier would look like an impostor. Where nothing can be read, SSH itself compares the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.slices import SliceState, SliceView

KEY_PATIENCE = 180.0  # seconds for which a slice is held back
_UNREADABLE = frozenset({Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE})


@dataclass(slots=True, kw_only=True)
class HostKeys:
    """The host keys of slices whose machines run. What it remembers ends with the process, which costs only time.

    Attributes:
        now: Epoch seconds.
    """

    now: Callable[[], float]
    _since: dict[str, float] = field(default_factory=dict[str, float])

    def check(self, name: str, public: Sequence[str], read: Callable[[], Sequence[str]]) -> SliceView | None:
        """Return the view of a slice whose hosts do not have their keys yet; None when they have, or after a while.

        Args:
            name: Of the slice.
            public: One public key for each host, as known_hosts has it: "ssh-ed25519 AAAA…".
            read: Returns what each host reports, in the same order: the base64 part of its key; "" for nothing.

        Raises:
            Refused: The cloud does not answer.
        """
        reported, patient = self._ask(name, read)
        right = sum(line.split()[1] == key for line, key in zip(public, reported, strict=False))
        if right < len(public) and patient:
            return SliceView(state=SliceState.CREATING, reason=f"{right} of {len(public)} hosts have their SSH key")
        self._since.pop(name, None)
        return None

    def waited(self, name: str) -> float:
        """Return the seconds for which a slice has been held back; 0 for one that is not."""
        return self.now() - self._since.get(name, self.now())

    def _ask(self, name: str, read: Callable[[], Sequence[str]]) -> tuple[Sequence[str], bool]:
        """Return what the hosts report, and whether it is worth waiting for more."""
        patient = self.now() - self._since.setdefault(name, self.now()) < KEY_PATIENCE
        try:
            return read(), patient
        except Refused as refused:
            if refused.answer.kind not in (*_UNREADABLE, Kind.NOT_FOUND):  # NOT_FOUND: none has reported anything
                raise
            return (), patient and refused.answer.kind not in _UNREADABLE
