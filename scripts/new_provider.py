"""Write the folder of a new driver; see scripts/new-provider."""

from __future__ import annotations

import keyword
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
_NAME = re.compile(r"[a-z][a-z0-9]{1,19}")
TEMPLATE = Path(__file__).parent / "provider"


def main(arguments: list[str]) -> int:
    """Write the driver of the name in the arguments."""
    name = arguments[0] if len(arguments) == 1 else ""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        print(
            "usage: scripts/new-provider NAME   (lower-case letters and digits, a letter first; no keyword of Python)",
            file=sys.stderr,
        )
        return 2
    folder, drivers = ROOT / "orchestrator/providers" / name, ROOT / "orchestrator/drivers.py"
    if folder.exists():
        print(f"new-provider: {folder.relative_to(ROOT)} exists already", file=sys.stderr)
        return 2
    title = name.capitalize()
    words = {"NAME": name, "TITLE": title, "VENDOR": title, "TODAY": datetime.now(UTC).date().isoformat()}
    folder.mkdir()
    files = sorted(TEMPLATE.glob("*.in"))
    for file in files:
        text = re.sub(r"@([A-Z]+)@", lambda found: words[found[1]], file.read_text(encoding="utf-8"))
        (folder / file.stem).write_text(text, encoding="utf-8")
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is not None:  # the order of imports depends on the name
        subprocess.run([ruff, "check", "--select", "I", "--fix", "--quiet", str(folder)], check=True)
    line = f'    "{name}": "orchestrator.providers.{name}",\n'
    before = '    "simulated":'
    drivers.write_text(drivers.read_text(encoding="utf-8").replace(before, line + before, 1), encoding="utf-8")
    print(f"{folder.relative_to(ROOT)}: {len(files)} files; orchestrator/drivers.py: 1 line")
    print(f"scripts/test tests/providers/test_provider_contract.py -k {name}   passes now")
    print("next: the five calls in service.py, machines.toml, errors.toml; CONTRIBUTING.md, 'A new cloud'")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
