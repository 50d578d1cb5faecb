"""Where the real gcloud is, and a surrounding in which it contacts only a server on this computer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def find_gcloud() -> tuple[str, str] | None:
    """(gcloud's folder, the Python that runs it), None where there is none."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    done = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root,basic.python_location)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    words = done.stdout.split()
    return (words[0], words[1]) if done.returncode == 0 and len(words) == 2 else None


def gcloud_settings(folder: Path, url: str, account: str = "") -> dict[str, str]:
    """Variables of a surrounding in which gcloud contacts only the server at `url`."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "token"
    token.write_text("no-token")
    settings = {
        "CONFIG": str(folder / "config"),
        "AUTH_ACCESS_TOKEN_FILE": str(token),
        "CORE_DISABLE_PROMPTS": "1",
        "CORE_DISABLE_USAGE_REPORTING": "true",
        "CORE_DISABLE_FILE_LOGGING": "true",
        "COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "SURVEY_DISABLE_PROMPTS": "true",
        "CORE_UNIVERSE_DOMAIN": "googleapis.com",
        "API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
        "API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
        "API_ENDPOINT_OVERRIDES_OSLOGIN": f"{url}/oslogin/",
    } | ({"CORE_ACCOUNT": account} if account else {})
    return {f"CLOUDSDK_{name}": value for name, value in settings.items()}
