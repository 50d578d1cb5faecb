"""What an answer of AWS means: one table, from its error codes to what we do and what the user can do.

Codes: "Error codes for the Amazon EC2 API" and "Common errors" of the EC2, SSM and STS API references (2026); which of
them mean "no machines here" is what public launchers agree on (their lists of November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, cast

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
from orchestrator.messages import to_one_line


class Kind(StrEnum):
    CAPACITY = "no machines"  # here and now: another zone, region or market may have them
    QUOTA = "no quota"
    PERMISSION = "not allowed"
    CREDENTIALS = "not logged in"
    INVALID = "bad request"
    NOT_FOUND = "not found"
    TAKEN = "exists already"
    IN_USE = "still in use"
    WRONG_STATE = "not in this state"
    MISMATCH = "requested before with other parameters"
    THROTTLED = "too many calls"  # nothing was done
    UNAVAILABLE = "not available"  # the service says so: whether it acted is not known
    NO_ANSWER = "no answer"  # whether it acted is not known
    UNKNOWN = "refused"

    @property
    def may_have_acted(self) -> bool:
        return self in (Kind.UNAVAILABLE, Kind.NO_ANSWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An error as it came. code: AWS's own, "" where there was no answer. words: AWS's, on one line.

    operation: what was asked for, as botocore names it.
    """

    kind: Kind
    code: str
    words: str
    operation: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.code or str(self.kind), self.words) if part)


class Refused(Exception):
    """AWS did not do it, or it is not known whether it did."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


_CODES: Mapping[Kind, tuple[str, ...]] = {
    Kind.CAPACITY: (
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity", "InsufficientCapacityOnHost", "InsufficientAddressCapacity",
        "InsufficientFreeAddressesInSubnet", "InsufficientVolumeCapacity", "UnfulfillableCapacity", "Unsupported",
        "SpotMaxPriceTooLow", "ReservationCapacityExceeded",
    ),
    Kind.QUOTA: (
        "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "AddressLimitExceeded",
        "PendingVerification", "SecurityGroupLimitExceeded", "RulesPerSecurityGroupLimitExceeded",
        "PlacementGroupLimitExceeded", "VolumeLimitExceeded", "NetworkInterfaceLimitExceeded",
    ),
    Kind.PERMISSION: (
        "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "NotAuthorized", "OptInRequired", "Blocked",
        "Forbidden", "403",
    ),
    Kind.CREDENTIALS: (
        "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "UnrecognizedClient", "ExpiredToken",
        "ExpiredTokenException", "RequestExpired", "SignatureDoesNotMatch", "InvalidSignatureException",
        "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "InvalidAccessKeyId", "TokenRefreshRequired", "InvalidToken",
    ),
    Kind.INVALID: ("MissingParameter", "MissingAction", "MalformedQueryString", "ValidationError",
                   "ValidationException", "UnknownParameter", "UnsupportedOperation", "UnknownOperationException"),
    Kind.NOT_FOUND: ("InvalidPlacementGroup.Unknown", "ParameterNotFound", "ParameterVersionNotFound", "NoSuchBucket",
                     "404", "NoSuchEntity"),
    Kind.TAKEN: ("InvalidGroup.Duplicate", "InvalidPlacementGroup.Duplicate", "InvalidPermission.Duplicate",
                 "InvalidKeyPair.Duplicate"),
    Kind.IN_USE: ("DependencyViolation", "InvalidPlacementGroup.InUse", "InvalidGroup.InUse", "InvalidIPAddress.InUse",
                  "ResourceInUse"),
    Kind.WRONG_STATE: ("IncorrectInstanceState", "IncorrectState", "InvalidState", "Resource.AlreadyAssociated",
                       "IncorrectSpotRequestState", "OperationNotPermitted", "ConcurrentModification"),
    Kind.MISMATCH: ("IdempotentParameterMismatch",),
    Kind.THROTTLED: (
        "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
        "RequestThrottledException", "EC2ThrottledException", "TooManyRequestsException", "PriorRequestNotComplete",
        "BandwidthLimitExceeded", "SlowDown",
    ),
    Kind.UNAVAILABLE: ("InternalError", "InternalFailure", "InternalServerError", "InternalServiceError",
                       "ServiceUnavailable", "ServiceUnavailableException", "Unavailable", "RequestTimeout"),
}  # fmt: skip
_BY_CODE: Mapping[str, Kind] = {code: kind for kind, codes in _CODES.items() for code in codes}
_ACTION = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")
_ENCODED = re.compile(r"\s*Encoded authorization failure message: \S+")


def by_code(code: str, http: int = 400) -> Kind:
    """The kind of an error code. A code that is not known tells by its form, and then by the HTTP status."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.startswith("AuthFailure."):  # such as .ServiceLinkedRoleCreationNotPermitted, at the first spot request
        return Kind.PERMISSION
    if code.endswith((".NotFound", ".NotFoundException", "NotFoundException")):
        return Kind.NOT_FOUND
    if code.endswith(".Duplicate"):
        return Kind.TAKEN
    if code.endswith("LimitExceeded"):
        return Kind.QUOTA
    if code.startswith("Invalid") or code.endswith(".Malformed"):
        return Kind.INVALID
    return Kind.UNAVAILABLE if http >= 500 else Kind.UNKNOWN


def understood(error: Exception, operation: str = "") -> Answer | None:
    """What an exception of the client library says; None for one that is no answer of a service (a bug of ours)."""
    of: Any = import_module("botocore.exceptions")  # the library ships no types
    unread: Any = import_module("botocore.parsers").ResponseParserError
    if isinstance(error, of.ClientError):
        response: Any = cast(Any, error).response
        said: Any = response.get("Error", {})
        http = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(said.get("Code", ""))
        return Answer(
            kind=by_code(code, http), code=code, words=one_line(str(said.get("Message", ""))), operation=operation
        )
    if isinstance(error, of.ParamValidationError):
        return Answer(kind=Kind.INVALID, code="", words=one_line(str(error)), operation=operation)
    lacking = (
        of.NoCredentialsError, of.PartialCredentialsError, of.CredentialRetrievalError, of.TokenRetrievalError,
        of.SSOError, of.UnauthorizedSSOTokenError, of.NoAuthTokenError,
    )  # fmt: skip
    if isinstance(error, lacking):
        return Answer(kind=Kind.CREDENTIALS, code="", words=one_line(str(error)), operation=operation)
    if isinstance(error, of.ProfileNotFound):
        return Answer(kind=Kind.INVALID, code="", words=one_line(str(error)), operation=operation)
    broken = (of.HTTPClientError, of.ConnectionError, of.IncompleteReadError, unread, ConnectionError)
    if isinstance(error, broken):
        return Answer(
            kind=Kind.NO_ANSWER, code="", words=one_line(str(error) or type(error).__name__), operation=operation
        )
    return None


def action_of(answer: Answer) -> str:
    """The IAM action that is missing, "" when neither AWS's words nor the operation tell."""
    found = _ACTION.search(answer.words)
    if found is not None:
        return found[1]
    return f"ec2:{answer.operation}" if answer.operation else ""


def explain(verb: str, name: str, answer: Answer, quota: str = "") -> OrchError:
    """The error for the user, with what to do next. quota: what asks for more of it, see quotas.py."""
    what, why = f"{verb} {name}".strip() + " was refused by AWS", str(answer)
    match answer.kind:
        case Kind.CAPACITY:
            return CapacityError(what, why, "try another zone, region or market, or later")
        case Kind.QUOTA:
            return QuotaError(what, why, quota or "ask for more in the console, Service Quotas, or take fewer")
        case Kind.PERMISSION:
            return _not_allowed(what, answer)
        case Kind.CREDENTIALS:
            return AccessError(what, why, "aws sso login   or: aws configure   then: aws sts get-caller-identity")
        case Kind.INVALID if "IAM Instance Profile" in answer.words:
            fix = "made a minute ago? then run the same command again   else: aws iam list-instance-profiles"
            return UserError(what, why, fix)
        case Kind.INVALID:
            return UserError(what, why, "orch accelerators   shows types and zones; docs/aws.md the options")
        case Kind.NOT_FOUND if verb == "create":
            return UserError(
                what, why, "check the subnet, the group, the image and the reservation that the task names"
            )
        case Kind.NOT_FOUND:
            return NotFoundError(what, why, "orch status")
        case Kind.TAKEN:
            return ConflictError(what, why, "take another name: -c NAME")
        case Kind.MISMATCH:
            return CloudError(what, why, "orch down   ends what the first request has made")
        case Kind.NO_ANSWER | Kind.UNAVAILABLE:
            what = f"{verb} {name}".strip() + ": no answer from AWS"
            return CloudError(what, f"it is not known whether it acted ({answer})", "run the same command again")
        case Kind.IN_USE | Kind.WRONG_STATE | Kind.THROTTLED | Kind.UNKNOWN:
            return CloudError(what, why, "run the same command again")


def one_line(words: str) -> str:
    """AWS's words, without the encoded message that only an administrator can decode."""
    return to_one_line(_ENCODED.sub("", words))


def _not_allowed(what: str, answer: Answer) -> AccessError:
    action = action_of(answer)
    if answer.code == "OptInRequired":
        return AccessError(what, str(answer), "open the region or the service for this account in the console")
    lacks = f"these credentials may not do {action}" if action else str(answer.kind)
    return AccessError(
        what, f"{lacks}\n{answer}", "orch check aws   says what is missing; docs/iam has a policy with just that"
    )
