"""As whom trees in buckets are uploaded, fetched and deleted: as a job's project, or as the servers themselves."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.kept_copies import lose_kept, read_kept

from orch_fronts.aws.roles import Roles
from orch_fronts.aws.s3 import S3Server
from orch_fronts.aws.server import AwsServer
from orch_fronts.buckets import serve_buckets
from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.project_settings import set_project_setting
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.state.sent_trees import MemberTrees
from orchestrator.engine.state.shared_trees import drop_unused_blobs, fetch_trees, publish_tree
from orchestrator.engine.state.tree_archives import write_archive
from orchestrator.engine.unattended.engine import UnattendedEngine
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.tree import Tree, read_tree
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.task.sent_tree import SentTree

DEFAULT, VISION = "arn:aws:iam::111111111111:role/of-default", "arn:aws:iam::222222222222:role/of-vision"
OWN, SECRET = "orch-simulated", "orch-simulated-of-tests"


class Site:
    """A store whose projects have roles, in front of an S3 and its STS on this computer."""

    def __init__(self, folder: Path, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.roles = Roles({DEFAULT: "", VISION: ""})
        aws = stack.enter_context(AwsServer(InMemory(Scenario(), ManualClock()), secret=SECRET, roles=self.roles))
        self.s3 = stack.enter_context(serve_buckets(S3Server(OWN, secret=SECRET, create=True, roles=self.roles)))
        for name, value in {
            "AWS_ACCESS_KEY_ID": OWN, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": aws.url, "AWS_ENDPOINT_URL_S3": self.s3.url, "ORCH_HOME": str(folder / "home"),
        }.items():  # fmt: skip
            patch.setenv(name, value)
        for name in ("ORCH_CONFIG", "ORCH_PROJECT", "ORCH_STORE", "ORCH_SERVER", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        set_project_setting("default", "aws.role_arn", DEFAULT)
        set_project_setting("vision", "aws.role_arn", VISION)

    @property
    def where(self) -> Paths:
        return load_paths()

    def make_tree(self) -> Tree:
        folder = self.folder / "content"
        folder.mkdir()
        (folder / "large").write_bytes(os.urandom(2 << 20))
        return read_tree(folder)

    def share(self, tree: Tree, bucket: str, project: str = "") -> None:
        with open_store(self.where, real_services(self.where), project=project) as store:
            publish_tree(store, tree, bucket, store.project)

    def fetch(self, tree: Tree, project: str) -> None:
        """Fetch the files of a job of a project, on a computer that does not have them."""
        lose_kept(self.where)
        fetch_trees({"workdir": tree.digest}, project)
        assert len(read_kept(self.where, tree.digest)["large"]) == 2 << 20

    def take_callers(self) -> set[str]:
        """Return who has called S3 since the last time: roles, or the key of this computer."""
        found = {self.roles.given[key].role if key in self.roles.given else key for key, _ in self.s3.calls}
        self.s3.calls.clear()
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack, monkeypatch)


def test_the_common_bucket_of_servers_is_reached_as_the_servers_alone(site: Site) -> None:
    tree = site.make_tree()
    with (site.folder / "archive").open("wb") as archive:
        write_archive(tree, archive)
    trees = MemberTrees(where=site.where, member="ada", common="s3://team/sent")
    sent = SentTree(digest=tree.digest)
    trees.keep(sent, site.folder / "archive")
    assert trees.has(sent)
    assert site.take_callers() == {OWN}
    site.fetch(tree, "vision")
    assert site.take_callers() == {OWN}
    with open_store(site.where, real_services(site.where)) as store:
        assert drop_unused_blobs(store, [], older=-10) == {}
    assert site.take_callers() == {OWN}


def test_a_project_s_bucket_is_reached_as_that_project_whoever_needs_it(site: Site) -> None:
    tree = site.make_tree()
    site.share(tree, "s3://vision-runs", "vision")
    assert site.take_callers() == {VISION}
    site.fetch(tree, "default")
    assert site.take_callers() == {VISION}
    with open_store(site.where, real_services(site.where)) as store:
        assert drop_unused_blobs(store, [], older=-10) == {}
        assert store.find_blob(tree.digest) is None
    assert site.take_callers() == {VISION}
    site.share(tree, "s3://runs")
    assert site.take_callers() == {DEFAULT}


def test_what_a_bucket_refuses_to_delete_is_kept_for_later_and_reported_once(site: Site) -> None:
    tree = site.make_tree()
    site.share(tree, "s3://vision-runs", "vision")
    with closing(sqlite3.connect(site.where.state / "orch.db")) as raw:
        raw.execute("UPDATE blobs SET used = 0")
        raw.commit()
    services = real_services(site.where)
    engine = UnattendedEngine(where=site.where, services=services, narrators=EngineLog)
    site.s3.forbidden.add("vision-runs")
    for _ in range(2):
        engine.run(until_idle=True)
    with open_reader() as reader:
        reported = [one.what for one in reader.events(None) if "s3://vision-runs" in one.what]
    with open_store(site.where, services) as store:
        assert len(reported) == 1 and "tried again each hour" in reported[0]
        assert store.use_blob(tree.digest), "a launch can still use it"
        site.s3.forbidden.clear()
        assert drop_unused_blobs(store, [], older=-10) == {}
        assert store.find_blob(tree.digest) is None


def test_a_launch_while_a_tree_is_deleted_keeps_it_again(site: Site) -> None:
    tree = site.make_tree()
    site.share(tree, "s3://vision-runs", "vision")
    with open_store(site.where, real_services(site.where)) as store:
        assert store.begin_dropping(tree.digest, -10)
        assert not store.use_blob(tree.digest) and not store.list_kept({tree.digest})
        site.share(tree, "s3://runs")
        store.end_dropping(tree.digest)
        found = store.find_blob(tree.digest)
    assert found is not None and (found.bucket, found.project) == ("s3://runs", "default")
