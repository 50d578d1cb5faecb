"""Fill the scripts that let further keys log in to a host."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.remote.admit_program import FOLDER, make_admit_program
from orchestrator.render.templates import render_template

PROGRAM = "/usr/local/sbin/orch-admit"
SSH_FOLDER = "/etc/ssh"


def render_installer(program: str = PROGRAM, folder: str = FOLDER, ssh_folder: str = SSH_FOLDER) -> str:
    """Return the script that installs the program as root, and adds its file to those that sshd reads."""
    text = make_admit_program(folder)
    return render_template(
        "remote/admit-install.sh.j2", program=program, folder=folder, ssh_folder=ssh_folder, program_text=text
    )


def render_admission(
    lines: Sequence[str], *, install: bool, program: str = PROGRAM, folder: str = FOLDER, ssh_folder: str = SSH_FOLDER
) -> str:
    """Return the script that makes these the lines of further keys on one host.

    Args:
        lines: Lines of authorized_keys; () lets no other key in.
        install: Whether the machine is ours to configure: a rented one. Others keep their sshd as it is.
        program: Path of the program on the host.
        folder: Where it writes.
        ssh_folder: Where sshd's configuration is.
    """
    return render_template(
        "remote/admit.sh.j2",
        lines="".join(f"{line}\n" for line in lines),
        install=install,
        program=program,
        installer=render_installer(program, folder, ssh_folder),
    )
