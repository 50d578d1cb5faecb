"""As whom EC2 is called: a profile of the AWS configuration, and the role that its credentials assume.

The text of a principal is what records, sessions and sweeps call it by; without a role it is the profile's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.options import Details
from orchestrator.providers.aws.options import AwsOptions
from orchestrator.slices import Candidate

_TEXT = re.compile(r"(?:(?P<profile>[^:]+) as )?(?P<role>arn:[^ ]+)(?: with (?P<external>[^ ]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whose credentials a call is made with.

    Attributes:
        profile: Of the AWS configuration; "" for the usual one.
        role_arn: The role that is assumed; "" for none.
        external_id: What its trust policy asks for; "" for nothing.
    """

    profile: str = ""
    role_arn: str = ""
    external_id: str = ""

    @classmethod
    def of(cls, candidate: Candidate) -> Principal:
        """Return the principal that a candidate names."""
        return cls.of_details(candidate.details)

    @classmethod
    def of_details(cls, details: Details) -> Principal:
        """Return the principal that details of a candidate name."""
        given = dict(details)
        return cls(**{name: given.get(name, "") for name in ("profile", "role_arn", "external_id")})

    @classmethod
    def of_options(cls, options: AwsOptions) -> Principal:
        """Return the principal that options name."""
        return cls(profile=options.profile, role_arn=options.role_arn, external_id=options.external_id)

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of a text that `str` made."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return cls(profile=text)
        return cls(profile=found["profile"] or "", role_arn=found["role"], external_id=found["external"] or "")

    def __str__(self) -> str:
        if not self.role_arn:
            return self.profile
        before = f"{self.profile} as " if self.profile else ""
        return f"{before}{self.role_arn}{f' with {self.external_id}' if self.external_id else ''}"

    @property
    def details(self) -> Details:
        """What a candidate carries of it."""
        pairs = (("profile", self.profile), ("role_arn", self.role_arn), ("external_id", self.external_id))
        return tuple(pair for pair in pairs if pair[1])
