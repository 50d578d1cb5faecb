"""Find out whether a script expects conda on the host, as the machines of the dialect have it, or brings it along."""

from __future__ import annotations

import re

# `conda` and a subcommand where a command begins; not in a path, a comment or an argument.
_COMMAND = re.compile(
    r"(?:^|[;&|(`]|\$\()[ \t]*(?:(?:if|then|else|do|while|!|sudo|time|eval)[ \t]+)*"
    r"(?:\"?\$\()?(?:conda|mamba)[ \t]+"
    r"(?:activate|create|install|env|run|init|info|update|config|shell\.bash|list)\b",
    re.MULTILINE,
)
# Where the dialect has it: sky/skylet/constants.py, SKY_CONDA_ROOT, June 2026.
_FILES = re.compile(r"\bminiconda3/(?:bin|etc)/")
_INSTALLER = re.compile(
    r"(?:mini(?:conda|forge|mamba)|anaconda|mambaforge)[^\s/]*\.sh\b|micromamba|install(?:ing)?[ \t]+(?:mini|ana)conda",
    re.IGNORECASE,
)


def expects_conda(script: str) -> bool:
    """Return whether a script uses conda and does not install it."""
    used = _COMMAND.search(script) or _FILES.search(script)
    return used is not None and _INSTALLER.search(script) is None
