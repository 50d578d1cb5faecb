"""The firewall and OS Login of the simulated cloud, all at one port, as `ORCH_GCP_ENDPOINT` leads there."""

from __future__ import annotations

import time

import pytest
from access_support import INSTALLATION, TOKEN, spec

from orch_fronts.google.compute.front import PREFIX as COMPUTE
from orch_fronts.google.compute.front import ComputeFront
from orch_fronts.google.oslogin import PREFIX as OS_LOGIN
from orch_fronts.google.oslogin import OsLoginFront
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.providers.caller import caller_address
from orchestrator.providers.google import access
from orchestrator.providers.google.firewall import Firewall, with_caller
from orchestrator.providers.google.oslogin import OsLogin
from orchestrator.providers.google.session import ENDPOINT, open_session
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.clock import ScaledClock
from orchestrator.simulator.scenario import Scenario, Zone
from orchestrator.values import Text


def test_a_slice_gets_its_rules_and_its_key_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = InMemory(Scenario(zones=(Zone("us-west4-a", "us-west4"),)), ScaledClock(100.0))
    fronts = {COMPUTE: ComputeFront(cloud, NoBodies(), PROJECT), OS_LOGIN: OsLoginFront()}
    with TpuServer(cloud, fronts=fronts) as server:
        monkeypatch.setenv(ENDPOINT, server.url)
        session = open_session()
        wall, of, project = Firewall(session), spec(), Text.of(PROJECT)
        planned = access.create_requests(access.read(of.candidate), of, project, "default")
        for request in with_caller(planned, lambda: caller_address(session)):
            wall.ensure(request)
            wall.ensure(request)
        (rule,) = wall.owned(PROJECT, INSTALLATION)
        assert (rule.slice, rule.intent) == ("demo-1", TOKEN)
        for request in with_caller(planned, lambda: "192.0.2.9"):
            wall.ensure(request)
        for request in access.end_requests(access.read(of.candidate), "demo-1", project, "default"):
            wall.remove(request, TOKEN)
            limit = time.monotonic() + 10
            while not wall.is_gone(request, TOKEN):
                assert time.monotonic() < limit
                time.sleep(0.1)
        assert wall.owned(PROJECT, INSTALLATION) == ()
        login = OsLogin(session)
        profile = login.admit(login.account(), make_host_key()[1], PROJECT, time.time() + 60)
        assert profile.user
        login.forget(profile)
