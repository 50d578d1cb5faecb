"""The rendezvous port: the usual ones on real hosts, and another one for each cluster on hosts of one computer."""

from __future__ import annotations

from dataclasses import replace

from plan_samples import candidate, sample_run

from orchestrator.plan.decide_hosts import host_environment
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import choose_shared_port
from orchestrator.plan.observed import Intent, IntentState, Observed
from orchestrator.values import Text, Unknown


def coordinator_of(run: Run, attempt: int = 1) -> str:
    intent = Intent(generation=1, name="mine-1", candidate=candidate(1), state=IntentState.ACCEPTED, since=0.0)
    observed = Observed(now=0.0, attempt=attempt, intents=(intent,))
    return dict(host_environment(run, observed, setup=False).for_rank(0))["ORCH_COORDINATOR"].preview()


def test_real_hosts_have_the_usual_ports_whatever_their_cluster_is() -> None:
    run = sample_run(1)
    for uid in ("a", "b"):
        assert coordinator_of(replace(run, uid=Text.of(uid))) == ":29500"
        assert coordinator_of(replace(run, uid=Text.of(uid), job_id=3), attempt=2) == ":29503"


def test_hosts_of_one_computer_have_ports_of_their_cluster() -> None:
    ports = {
        (uid, job, attempt): choose_shared_port(Text.of(uid), job, attempt)
        for uid in ("one", "two", "three")
        for job in range(1, 20)
        for attempt in (1, 2)
    }
    assert all(isinstance(port, int) and 29700 <= port < 32768 - 100 for port in ports.values())
    assert len({port for (uid, job, _), port in ports.items() if job == 1 and uid}) == 6
    assert len({port for (uid, _, attempt), port in ports.items() if uid == "one" and attempt == 1}) == 19
    run = replace(sample_run(1), one_computer=True, uid=Text.of("one"))
    assert coordinator_of(run) == f":{ports['one', 1, 1]}"
    assert coordinator_of(run, attempt=2) == f":{ports['one', 1, 2]}"


def test_a_plan_leaves_the_port_open_before_the_cluster_is_recorded() -> None:
    run = replace(sample_run(1), one_computer=True, uid=Text.of(Unknown("id")))
    assert coordinator_of(run) == ":(port of this cluster, known after it is recorded)"
