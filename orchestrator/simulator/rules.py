"""The rules of the simulated cloud, each with the public document it comes from, as read for this project.

"modelled" marks what no document says: it is chosen so that a client which survives it survives the real thing. Each
rule has a test of its name in tests/simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.simulator.state import Phase, QueuePhase

TPU = "Cloud TPU API reference and guides, read November 2026"
EC2 = "Amazon EC2 User Guide and API errors, read November 2026"


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    words: str
    source: str


RULES = (
    Rule(
        "token_makes_a_create_repeatable",
        "The same token with the same request answers the resource that the first call made.",
        f"{EC2} (ClientToken); TPU queued resources take a requestId",
    ),
    Rule(
        "token_with_another_request_is_refused",
        "The same token with other parameters is an error and changes nothing.",
        f"{EC2} (IdempotentParameterMismatch)",
    ),
    Rule(
        "token_outlives_its_resource",
        "A token is remembered for a day after the resource has ended; a late repeat of the create makes nothing.",
        "older EC2 pages: at least 24 hours after the termination of the instance; the answer's wording is modelled",
    ),
    Rule(
        "name_is_taken_while_it_lives",
        "A second create of a name with another token is refused until the first one is gone.",
        f"{TPU} (nodeId, ALREADY_EXISTS)",
    ),
    Rule(
        "create_without_capacity_is_refused",
        "When the zone has no such machines now, the create is refused and leaves nothing behind.",
        f"{EC2} (InsufficientInstanceCapacity, HTTP 500); {TPU} (RESOURCE_EXHAUSTED)",
    ),
    Rule(
        "capacity_can_fail_late",
        "A create may be accepted and fail for want of machines afterwards; the resource stays, failed, until ended.",
        f"{TPU} (error 8 of the long-running operation); that it stays is modelled",
    ),
    Rule(
        "quota_is_distinguished_from_capacity",
        "Above the account's limit in a region the create is refused with another error.",
        f"{EC2} (VcpuLimitExceeded); {TPU} (quota exceeded)",
    ),
    Rule(
        "reservation_has_machines_of_its_own",
        "A create against a reservation uses its machines only and is refused when they are all in use.",
        f"{EC2} (ReservationCapacityExceeded)",
    ),
    Rule(
        "accelerator_must_be_offered_in_the_zone",
        "A zone that does not have a kind of machine refuses it.",
        f"{EC2} (Unsupported)",
    ),
    Rule(
        "only_spot_is_preempted",
        "By itself the cloud takes back only spot machines.",
        f"{TPU}: only Spot VMs and preemptible TPUs are eligible for preemption",
    ),
    Rule(
        "preemption_gives_notice",
        "The hosts can read when they will die, some time before they do. How long: the scenario.",
        "EC2 spot interruption notice: two minutes; Compute Engine: thirty seconds (public guides; length modelled)",
    ),
    Rule(
        "preempted_resource_stays_until_ended",
        "A preempted resource holds no machines and keeps its name until it is ended.",
        f"{TPU} (Node.State PREEMPTED)",
    ),
    Rule(
        "maintenance_restarts_the_hosts",
        "Maintenance restarts every host: its files stay, its programs are lost, its address may be another one.",
        "tpu-starter (ayaka14732, 2024): VMs reboot on maintenance and the external IP changes",
    ),
    Rule(
        "dead_host_is_noticed_late",
        "A host that dies is silent immediately; the cloud says so only some time later.",
        "modelled",
    ),
    Rule("half_made_create_never_gets_ready", "Some hosts of a create may never come up.", "modelled"),
    Rule(
        "stopped_resource_gives_its_machines_back",
        "While it is stopped others may take its machines, and then the start is refused.",
        f"{EC2} (InsufficientInstanceCapacity on StartInstances)",
    ),
    Rule(
        "time_out_may_have_acted",
        "A call that timed out may have acted or not; the answer is the same.",
        "modelled: an answer that is lost says nothing of what was done",
    ),
    Rule(
        "duplicate_delivery_acts_once_with_a_token",
        "A request that arrives twice makes one resource if it carries a token.",
        f"{EC2} (ClientToken); duplicate delivery itself is modelled",
    ),
    Rule(
        "throttling_and_server_errors_do_not_act",
        "429, 500 and 503 are answered before anything is done.",
        f"{EC2} (RequestLimitExceeded, InternalError, Unavailable); that they never act is modelled",
    ),
    Rule(
        "new_resource_may_not_be_shown_yet",
        "For a bounded time a look may miss what was just made, or still show what has just gone.",
        "SkyPilot issues 4431 and 4443; EC2 InvalidInstanceID.NotFound just after RunInstances",
    ),
    Rule(
        "stale_read_shows_an_older_state",
        "A look may show the state of some seconds ago, never one that was not.",
        f"{EC2} (eventual consistency)",
    ),
    Rule(
        "page_may_be_empty_and_not_the_last",
        "Only a missing page token ends a listing.",
        f"{EC2} (NextToken with an empty page)",
    ),
    Rule(
        "partial_listing_says_so",
        "A listing may miss zones that could not be asked; it names them.",
        f"{TPU} (unreachable of ListNodesResponse)",
    ),
    Rule(
        "accepted_end_may_do_nothing",
        "An end may be accepted and nothing follow until it is asked again.",
        "modelled after reports of deletes that had to be repeated",
    ),
    Rule(
        "end_of_an_ending_resource_succeeds",
        "Asking for the end again is harmless.",
        f"{EC2} (TerminateInstances is idempotent)",
    ),
    Rule(
        "queue_waits_for_machines_in_order",
        "A queued request waits until there are machines, first come first served.",
        f"{TPU} (WAITING_FOR_RESOURCES, PROVISIONING, ACTIVE); the order is modelled",
    ),
    Rule(
        "queue_request_expires_and_stays",
        "A request that is not filled in time fails and stays in the queue until it is deleted.",
        f"{TPU}: the request remains in the queue after it has expired",
    ),
    Rule(
        "preempted_queue_request_is_suspended",
        "When its nodes are taken it is suspending, then suspended, and is not filled again.",
        f"{TPU} (SUSPENDING, SUSPENDED: not eligible for further allocation)",
    ),
    Rule(
        "suspended_queue_request_holds_quota",
        "A suspended request counts against the quota until it is deleted.",
        "marin-community/marin issue 87; Cloud TPU documentation (queued resources: delete to free quota), 2025",
    ),
    Rule(
        "queue_request_with_nodes_needs_force",
        "Deleting a request whose nodes live is refused without force; with it the nodes end first.",
        f"{TPU} (DeleteQueuedResource.force)",
    ),
    Rule(
        "suspending_queue_request_cannot_be_deleted",
        "While it is suspending a delete is refused, even with force.",
        "apple/axlearn, TPU runner (2024): it must not force-delete while suspending",
    ),
    Rule(
        "foreign_resource_can_be_distinguished",
        "Others share the account: their resources carry other labels or none; a call that changes one is on record.",
        "dstack issue 3453 (accounts are shared)",
    ),
    Rule(
        "call_may_be_limited_to_a_label",
        "A call can be made so that it is refused on a resource without a label, whatever the caller has seen before.",
        f"{EC2}: IAM condition aws:ResourceTag on destructive calls",
    ),
    Rule("address_is_used_again", "The lowest free address goes to the next host.", "dstack issue 2637"),
    Rule(
        "job_under_one_name_runs_once",
        "A host that knows a job does not start it again.",
        "orchestrator/remote/jobs.py, the contract of our shell programs",
    ),
)

# Which phase may follow which; everything else is a fault of the simulator.
MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.CREATING: frozenset({Phase.READY, Phase.FAILED, Phase.PREEMPTED, Phase.ENDING}),
    Phase.READY: frozenset({Phase.MAINTENANCE, Phase.PREEMPTED, Phase.FAILED, Phase.STOPPING, Phase.ENDING}),
    Phase.MAINTENANCE: frozenset({Phase.READY, Phase.PREEMPTED, Phase.FAILED, Phase.ENDING}),
    Phase.PREEMPTED: frozenset({Phase.ENDING}),
    Phase.FAILED: frozenset({Phase.ENDING}),
    Phase.STOPPING: frozenset({Phase.STOPPED, Phase.PREEMPTED, Phase.FAILED, Phase.ENDING}),
    Phase.STOPPED: frozenset({Phase.STARTING, Phase.ENDING}),
    Phase.STARTING: frozenset({Phase.READY, Phase.PREEMPTED, Phase.FAILED, Phase.ENDING}),
    Phase.ENDING: frozenset({Phase.ABSENT}),
    Phase.ABSENT: frozenset(),
}

QUEUE_MOVES: dict[QueuePhase, frozenset[QueuePhase]] = {
    QueuePhase.UNSPECIFIED: frozenset(),  # the API's zero value; the cloud never stores it
    QueuePhase.CREATING: frozenset({QueuePhase.ACCEPTED, QueuePhase.FAILED, QueuePhase.DELETING}),
    QueuePhase.ACCEPTED: frozenset({QueuePhase.WAITING, QueuePhase.FAILED, QueuePhase.DELETING}),
    QueuePhase.WAITING: frozenset({QueuePhase.PROVISIONING, QueuePhase.FAILED, QueuePhase.DELETING}),
    QueuePhase.PROVISIONING: frozenset(
        {QueuePhase.ACTIVE, QueuePhase.FAILED, QueuePhase.SUSPENDING, QueuePhase.DELETING}
    ),
    QueuePhase.ACTIVE: frozenset({QueuePhase.SUSPENDING, QueuePhase.DELETING}),
    QueuePhase.FAILED: frozenset({QueuePhase.ACCEPTED, QueuePhase.DELETING}),
    QueuePhase.SUSPENDING: frozenset({QueuePhase.SUSPENDED}),
    QueuePhase.SUSPENDED: frozenset({QueuePhase.ACCEPTED, QueuePhase.DELETING}),
    QueuePhase.DELETING: frozenset(),
}

HOLDS_MACHINES = frozenset(
    {Phase.CREATING, Phase.READY, Phase.MAINTENANCE, Phase.STOPPING, Phase.STARTING, Phase.ENDING}
)
TOKEN_MEMORY = 86_400.0  # seconds after the end; rule token_outlives_its_resource
QUEUE_LOOK = 10.0  # seconds between two looks for free machines; modelled
