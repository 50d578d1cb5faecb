"""The keys with which this computer logs in: its own, that of engines, and a recovery key."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.state.keys import identify_computer, make_slice_keys, make_user_key
from orchestrator.errors import UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.keys import make_host_key


@pytest.fixture
def engine_key(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "engine"
    path.parent.mkdir()
    path.write_text(make_host_key()[0])
    path.chmod(0o600)
    return path


def home(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Paths:
    monkeypatch.setenv("ORCH_HOME", str(folder))
    return load_paths()


def test_engines_with_one_key_are_one_computer_on_any_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine_key: Path
) -> None:
    monkeypatch.setenv("ORCH_ENGINE_KEY", str(engine_key))
    first, public = identify_computer(home(monkeypatch, tmp_path / "a"))
    assert identify_computer(home(monkeypatch, tmp_path / "b")) == (first, public)
    assert first.host == "engine"
    path = make_user_key(load_paths())
    assert path.readlink() == engine_key, "the private key was copied"
    assert path.read_text() == engine_key.read_text()
    engine_key.write_text(make_host_key()[0])
    other, changed = identify_computer(load_paths())
    assert other.id != first.id and changed != public
    monkeypatch.delenv("ORCH_ENGINE_KEY")
    with pytest.raises(UserError, match="is that of an engine"):
        identify_computer(load_paths())


def test_the_key_of_a_computer_is_never_replaced_by_that_of_an_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine_key: Path
) -> None:
    paths = home(monkeypatch, tmp_path / "a")
    own = make_user_key(paths).read_text()
    monkeypatch.setenv("ORCH_ENGINE_KEY", str(engine_key))
    with pytest.raises(UserError, match="has another key"):
        make_user_key(paths)
    monkeypatch.delenv("ORCH_ENGINE_KEY")
    assert make_user_key(paths).read_text() == own


@pytest.mark.parametrize("case", ["open to others", "absent", "no key"])
def test_an_engine_key_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine_key: Path, case: str
) -> None:
    if case == "open to others":
        engine_key.chmod(0o640)
    elif case == "absent":
        engine_key.unlink()
    else:
        engine_key.write_text("ssh-ed25519 AAAA")
    monkeypatch.setenv("ORCH_ENGINE_KEY", str(engine_key))
    paths = home(monkeypatch, tmp_path / "a")
    with pytest.raises(UserError, match="cannot be used") as error:
        make_user_key(paths)
    assert ("chmod 600" in error.value.next_step) == (case == "open to others")
    assert not (paths.state / "keys" / "id_ed25519").exists()


def test_a_recovery_key_is_a_public_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = home(monkeypatch, tmp_path / "a")
    private, public = make_host_key()
    assert make_slice_keys(paths, "one-1", "token", 1).login_keys == (
        make_slice_keys(paths, "one-1", "token", 1).user_public,
    )
    monkeypatch.setenv("ORCH_SSH_RECOVERY_KEY", f"{public} me@home 'in a drawer'")
    assert make_slice_keys(paths, "one-1", "token", 1).recovery_public == public
    for wrong in (
        private,
        "ssh-ed25519",
        f"{public}\n{public}",
        f'command="id" {public}',
        f"{public} x\norch:{public}",
    ):
        monkeypatch.setenv("ORCH_SSH_RECOVERY_KEY", wrong)
        with pytest.raises(UserError, match="not a public SSH key") as error:
            make_slice_keys(paths, "one-1", "token", 1)
        assert private.splitlines()[1] not in str(error.value)
