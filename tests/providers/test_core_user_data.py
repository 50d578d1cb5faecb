"""The user data of plain machines: one host key, and every key that may log in, as YAML reads them."""

from __future__ import annotations

import yaml

from orchestrator.providers.core.cloud_init import render_user_data
from orchestrator.remote.keys import make_host_key


def test_a_machine_gets_its_own_host_key_and_no_other() -> None:
    private, public = make_host_key()
    login = make_host_key()[1]
    text = render_user_data([login, "ssh-ed25519 AAAA a person's 'key': #1"], private, public)
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    assert config["ssh_keys"] == {"ed25519_private": private, "ed25519_public": public}
    assert config["ssh_deletekeys"] is True
    assert config["ssh_authorized_keys"] == [login, "ssh-ed25519 AAAA a person's 'key': #1"]
