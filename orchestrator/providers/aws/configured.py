"""Whether this computer may have credentials of AWS, and for which profiles, without a request and without boto3.

Where the SDKs look: "Standardized credential providers", AWS SDKs and Tools Reference Guide, November 2026. The role
of an EC2 machine is not looked for: only a request to its metadata service would show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from orchestrator.providers.aws.endpoint import ENDPOINT, loopback_endpoint

_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Settings of a profile that lead to credentials ("Settings reference" of the same guide, November 2026).
_SETTINGS = frozenset(
    {
        "aws_access_key_id",
        "credential_process",
        "login_session",
        "role_arn",
        "sso_account_id",
        "sso_session",
        "sso_start_url",
    }
)


def find_credentials(environ: Mapping[str, str], home: Path) -> str:
    """Return what says that there may be credentials, such as the name of a file; "" for nothing."""
    if loopback_endpoint():
        return f"{ENDPOINT} is set"
    for name in _VARIABLES:
        if environ.get(name):
            return f"{name} is set"
    for path in _files(environ, home):
        if _profiles(path):
            return f"{path} has credentials"
    return ""


def usual_profile(environ: Mapping[str, str], home: Path) -> str | None:
    """Return the profile that is used where none is named, "" for credentials of the environment, None for neither."""
    if loopback_endpoint() or any(environ.get(name) for name in _VARIABLES):
        return ""
    name = environ.get("AWS_PROFILE") or "default"
    return name if name in list_profiles(environ, home) else None


def list_profiles(environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the profiles with credentials, by name; a server on this computer has none."""
    if loopback_endpoint():
        return ()
    return tuple(sorted({profile for path in _files(environ, home) for profile in _profiles(path)}))


list_accounts = list_profiles  # as every driver with credentials calls them


def _files(environ: Mapping[str, str], home: Path) -> tuple[Path, Path]:
    shared = environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / ".aws" / "credentials")
    config = environ.get("AWS_CONFIG_FILE") or str(home / ".aws" / "config")
    return Path(shared).expanduser(), Path(config).expanduser()


def _profiles(path: Path) -> list[str]:
    """Those of one file that have a setting which leads to credentials. A file that cannot be read may have some."""
    parser = ConfigParser(interpolation=None, strict=False, default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, ConfigError):
        return ["default"]
    return [
        name.removeprefix("profile ").strip()
        for name in parser.sections()
        if not name.startswith(("sso-session ", "services ")) and _SETTINGS & {*parser[name]}
    ]
