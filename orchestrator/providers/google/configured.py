"""Whether this computer may have credentials of Google, and which projects it names, without a request.

"How Application Default Credentials works", Google Cloud documentation, November 2026. The account of a Google machine
is not looked for: only a request to its metadata server would show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from orchestrator.cloud_access import GOOGLE_API

_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


def find_credentials(environ: Mapping[str, str], home: Path) -> str:
    """Return what says that there are credentials, such as the name of a file; "" for nothing."""
    if environ.get(GOOGLE_API):
        return f"{GOOGLE_API} is set"
    if named := environ.get(_FILE):
        return f"{_FILE} is set" if Path(named).is_file() else ""
    default = _folder(environ, home) / "application_default_credentials.json"
    return f"{default} has credentials" if default.is_file() else ""


def list_projects(environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the projects of gcloud's configurations ("gcloud config configurations", November 2026)."""
    if environ.get(GOOGLE_API):  # of a server on this computer, which has none of them
        return ()
    found = {_project(path) for path in (_folder(environ, home) / "configurations").glob("config_*")}
    return tuple(sorted(found - {""}))


def list_accounts(environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the projects that this computer names, the one of the environment first."""
    named = environ.get("GOOGLE_CLOUD_PROJECT", "")
    return tuple(dict.fromkeys(filter(None, (named, *list_projects(environ, home)))))


def _folder(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud").expanduser()


def _project(path: Path) -> str:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ConfigError):
        return ""
    return parser.get("core", "project", fallback="").strip()
