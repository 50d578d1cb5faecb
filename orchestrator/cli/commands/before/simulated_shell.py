"""Make the prompt of a shell show that its cloud is simulated."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

_FISH = "functions -c fish_prompt orch_prompt; function fish_prompt; printf {}; orch_prompt; end"


def mark_prompt(
    command: list[str], cloud: str, folder: Path, env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment, changed so that an interactive shell shows the mark in its prompt.

    Startup files set the prompt themselves, so bash, zsh and fish get one that runs after the user's own. Other shells
    take PS1 from the environment. Commands other than a shell without arguments stay as they are.
    """
    mark = f"(orch simulated {cloud}) "
    if len(command) != 1:
        return command, {**env}
    match Path(command[0]).name:
        case "bash":
            file = _write(folder, "bashrc", f'[ ! -f ~/.bashrc ] || . ~/.bashrc\nPS1={shlex.quote(mark)}"$PS1"\n')
            return [command[0], "--rcfile", str(file)], {**env}
        case "zsh":
            home = env.get("ZDOTDIR", env.get("HOME", ""))
            _write(folder, ".zshenv", _zsh_startup(home, ".zshenv"))
            file = _write(folder, ".zshrc", _zsh_startup(home, ".zshrc") + f'PROMPT={shlex.quote(mark)}"$PROMPT"\n')
            return command, {**env, "ZDOTDIR": str(file.parent)}
        case "fish":
            return [command[0], "-C", _FISH.format(shlex.quote(mark))], {**env}
        case "sh" | "dash" | "ksh" | "ash":
            return command, {**env, "PS1": mark + env.get("PS1", "$ ")}
        case _:
            return command, {**env}


def _zsh_startup(home: str, name: str) -> str:
    path = shlex.quote(str(Path(home) / name))
    return f"[ ! -f {path} ] || . {path}\n"


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / "shell" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
