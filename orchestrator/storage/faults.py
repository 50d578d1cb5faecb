"""Translation of the errors of obstore and the operating system into errors with a next step."""

from __future__ import annotations

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from orchestrator.errors import AccessError, NotFoundError, OrchError, StorageError
from orchestrator.storage.address import Address
from trainer.checkpoint.regular_files import NotRegularError


@contextmanager
def translate_cloud_errors(address: Address, doing: str) -> Generator[None, None, None]:
    """Translate the errors of obstore inside the block; `doing` is for the message, such as "read gs://b/k"."""
    from obstore.exceptions import BaseError

    try:
        yield
    except OrchError:
        raise
    except (BaseError, FileNotFoundError, NotImplementedError, ValueError) as error:
        raise cloud_error(address, doing, error) from error


@contextmanager
def translate_disk_errors(doing: str) -> Generator[None, None, None]:
    """Translate an OSError inside the block; `doing` is for the message, such as "write /data/file"."""
    try:
        yield
    except OSError as error:
        raise disk_error(doing, error) from error


def cloud_error(address: Address, doing: str, error: BaseException) -> OrchError:
    """Return the OrchError for an error of obstore, which has the HTTP answer only in its text."""
    text = str(error)
    code = _first_match(r"<Code>(\w+)</Code>", text)
    status = _first_match(r"status code: (\d{3})", text)
    what = f"cannot {doing}"
    bucket = f"{address.scheme}://{address.container}"
    if code == "NoSuchBucket":
        return NotFoundError(what, f"there is no bucket {bucket}", _create_command(address))
    if _is_about_credentials(text):
        return AccessError(what, "no credentials were found on this machine", _login_command(address))
    if status == "401" or code in _REFUSED_KEYS:
        return AccessError(what, f"the credentials were refused ({code or status})", _login_command(address))
    if status == "403" or "(code: AccessDenied)" in text:  # of one key among several that were deleted
        why = _message(text) or f"access was refused ({code or status})"
        return AccessError(what, why, f"ask the owner of {bucket} for this right, or {_login_command(address)}")
    if isinstance(error, FileNotFoundError) or status == "404":
        return NotFoundError(what, "there is no such object", f"list it: orch storage ls {bucket}")
    if code in _OTHER_REGION or "redirect without LOCATION" in text:
        return StorageError(
            what, f"{bucket} is in another region", "export AWS_REGION=THE-BUCKETS-REGION and try again"
        )
    if status:
        return StorageError(what, f"the store answered {status}: {_message(text) or code or 'no reason given'}", _RETRY)
    if is_network_failure(error):
        host = _first_match(r"https?://([^/\s]+)", text)
        return StorageError(what, f"{host or bucket} cannot be reached", "check the network and the endpoint address")
    return StorageError(what, text.splitlines()[0][:300] if text else type(error).__name__, _RETRY)


def disk_error(doing: str, error: OSError) -> OrchError:
    """Return the OrchError for a failed system call."""
    what = f"cannot {doing}"
    if isinstance(error, NotRegularError):
        return StorageError(what, str(error), "who put it there? remove it, or use another folder")
    place = str(error.filename or "").strip()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            what,
            "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up",
            f"free some room and run it again: df -h {Path(place).parent if place else '.'}",
        )
    if error.errno == errno.EROFS:
        return AccessError(what, "the file system is mounted read-only", "mount it for writing, or use another folder")
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessError(
            what,
            (error.strerror or "not allowed").lower(),
            f"check the folder's owner and mode: ls -ld {quote(place)}",
        )
    if error.errno == errno.ENOENT:
        return NotFoundError(what, f"{place or 'it'} does not exist", f"ls -l {quote(str(Path(place).parent))}")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StorageError(what, "a file is where a folder is needed", "choose another name")
    if error.errno == errno.EISDIR:
        return StorageError(what, "a folder is where a file is needed", "choose another name")
    return StorageError(what, error.strerror or str(error), _RETRY)


def is_missing_bucket(error: BaseException) -> bool:
    """Return whether the answer names the bucket, not the object, as missing."""
    return "<Code>NoSuchBucket</Code>" in str(error)


def http_status(error: BaseException) -> int:
    """Return the HTTP status in obstore's text; 0 when there was no answer."""
    return int(_first_match(r"status code: (\d{3})", str(error)) or 0)


def is_network_failure(error: BaseException) -> bool:
    """Return whether the request or its answer was lost in the network. Missing credentials are no such failure."""
    text = str(error)
    return "HTTP error" in text and not _is_about_credentials(text)


def is_missing_credentials(error: BaseException) -> bool:
    """Return whether nothing was sent, because what gives obstore its credentials has failed."""
    from obstore.exceptions import UnauthenticatedError

    return isinstance(error, UnauthenticatedError) and "credential provider" in str(error)


def never_connected(error: BaseException) -> bool:
    """Return whether no connection was made, so that the server cannot have acted."""
    return re.search(r"kind:\s*Connect\b", str(error)) is not None


_RETRY = "it was tried several times; run the command again later"

_OTHER_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_REFUSED_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
)


def _is_about_credentials(text: str) -> bool:
    """Return whether credentials are missing: obstore tries the machine's metadata service last."""
    signs = ("169.254.169.254", "metadata.google.internal", "token request", "TokenRequest", "MissingCredentials")
    return any(sign in text for sign in signs)


def _message(text: str) -> str:
    """Return the service's own message, which for one key of several is outside of the XML."""
    one_key = r"request failed for key .*?: ([^\n]{1,300}) \(code: \w+\)"
    return _first_match(r"<Message>([^<]{1,300})</Message>", text) or _first_match(one_key, text)


def _first_match(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match.group(1) if match else ""


def _login_command(address: Address) -> str:
    if address.scheme == "gs":
        return "log in: gcloud auth application-default login"
    return "log in: aws configure, or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def _create_command(address: Address) -> str:
    if address.scheme == "gs":
        return f"create it: gcloud storage buckets create gs://{address.container}"
    return f"create it: aws s3 mb s3://{address.container}"
