"""What the Google front adds to the rules of the simulated cloud, each with its public page or the word "modelled".

Each rule has a test of its name in tests/simulator_google.
"""

from __future__ import annotations

from orchestrator.simulator.rules import Rule

REST = "Cloud TPU API v2 REST reference (docs.cloud.google.com/tpu/docs/reference/rest/v2), read November 2026"
QUEUE = "Manage queued resources (docs.cloud.google.com/tpu/docs/queued-resources), read November 2026"
MANAGE = "Manage TPU resources (docs.cloud.google.com/tpu/docs/managing-tpus-tpu-vm), read November 2026"
FLEX = (
    "Request Cloud TPUs using Flex-start (docs.cloud.google.com/tpu/docs/request-using-flex-start), read November 2026"
)
DISKS = "Attach durable block storage to a TPU VM (docs.cloud.google.com/tpu/docs/setup-persistent-disk), read 2026"
ALPHA = "Discovery document of the TPU API v2alpha1 (google-api-python-client 2.202, October 2026)"
LABELS = "Requirements for labels (docs.cloud.google.com/resource-manager/docs/labels-overview), read November 2026"

RULES = (
    Rule(
        "unknown_field_is_refused",
        "A body with a field that the message does not have is INVALID_ARGUMENT and nothing is done.",
        f"{REST}; google.protobuf.json_format does the check with the library's own types",
    ),
    Rule(
        "capacity_fails_in_the_operation",
        "A create for which there is no room is accepted; its operation fails with code 8 and no node stays.",
        "google-cloud-tpu 1.28 (an operation's error code 8 is ResourceExhausted); that it takes a moment is modelled",
    ),
    Rule(
        "quota_is_refused_at_once",
        "Above the quota the request itself is refused with 429 RESOURCE_EXHAUSTED and says which quota.",
        "google.rpc.Code (RESOURCE_EXHAUSTED); the words and the detail QuotaFailure are modelled",
    ),
    Rule(
        "operation_is_done_by_the_clock",
        "Every change answers an operation that is done when the change is, with the resource as its response.",
        f"{REST} (projects.locations.operations)",
    ),
    Rule(
        "second_create_of_a_node_is_refused",
        "nodes.create takes no request id in v2: a repeat is ALREADY_EXISTS, whoever sends it.",
        f"{REST} (nodes.create)",
    ),
    Rule(
        "accelerator_type_must_exist",
        "A type or a topology that no generation has, or one of TPU7x, is INVALID_ARGUMENT.",
        f"{MANAGE}: the Cloud TPU API does not serve TPU7x; sizes as in data/tpu.toml",
    ),
    Rule(
        "runtime_version_must_exist",
        "Only the runtime versions of the table are known.",
        "Cloud TPU software versions (docs.cloud.google.com/tpu/docs/runtimes), read 2025",
    ),
    Rule(
        "node_id_is_a_name_of_compute_engine",
        "Lower-case letters, digits and hyphens, at most 63, a letter first and no hyphen last.",
        f"modelled: stricter than the pattern that {REST} gives for NodeSpec.nodeId",
    ),
    Rule(
        "labels_are_lower_case",
        "At most 64; keys and values have at most 63 lower-case letters, digits, - and _; a key begins with a letter.",
        LABELS,
    ),
    Rule(
        "metadata_has_a_limit",
        "One value has at most 256 KiB, all together 512 KiB.",
        "About VM metadata (docs.cloud.google.com/compute/docs/metadata/overview), read 2025",
    ),
    Rule(
        "only_one_host_can_be_stopped",
        "Stop and start are refused for a node of several hosts and for a node of a queued resource.",
        f"{MANAGE}; the words are modelled",
    ),
    Rule(
        "preempted_node_is_listed_until_deleted",
        "A preempted node stays, PREEMPTED, without endpoints, until somebody deletes it.",
        f"{REST} (Node.State PREEMPTED)",
    ),
    Rule(
        "living_nodes_need_force",
        "Without force a queued resource is deleted only when it has no node that lives.",
        f"{REST} (queuedResources.delete, force)",
    ),
    Rule(
        "deleted_node_suspends_its_request",
        "When its node goes a request is SUSPENDING, then SUSPENDED: by the USER who deleted it, or by the SERVICE.",
        f"{QUEUE}; {REST} (QueuedResourceState.stateInitiator)",
    ),
    Rule(
        "several_slices_come_together",
        "The nodes of multisliceParams are called PREFIX-0, PREFIX-1, ...; they are made when there is room for all.",
        f"{REST} (MultisliceParams); all or none is modelled",
    ),
    Rule(
        "lost_slice_suspends_all",
        "When one node of a multislice is taken all of its nodes end.",
        f"{QUEUE} (SUSPENDING: the resources of the request are being deleted); modelled in detail",
    ),
    Rule(
        "request_may_name_its_earliest_time",
        "A queued resource is not filled before validAfter.",
        f"{REST} (QueueingPolicy)",
    ),
    Rule(
        "reset_queues_a_suspended_request_again",
        "reset takes a SUSPENDED or FAILED queued resource back into the queue; any other is FAILED_PRECONDITION.",
        f"{REST} (queuedResources.reset); from which states is modelled",
    ),
    Rule(
        "external_address_only_when_asked",
        "Endpoints are in worker order; they have an external address only with enableExternalIps.",
        f"{REST} (NetworkConfig.enableExternalIps, NetworkEndpoint.accessConfig)",
    ),
    Rule(
        "run_duration_ends_the_nodes",
        "With runDuration the service deletes the nodes when they have run so long, at most seven days.",
        f"{FLEX} (seven days; the queued resource is SUSPENDED afterwards)",
    ),
    Rule(
        "model_and_tier_do_not_contradict",
        "Flex-start needs a run duration, RESERVATION_BOUND a reservation; a tier beside another model is refused.",
        f"{ALPHA}; {FLEX} (maxRunDuration); which pairs are refused is modelled",
    ),
    Rule(
        "boot_disk_is_not_smaller_than_its_image",
        "bootDiskConfig.diskSizeGb, of v2alpha1 alone, is at least 100, what every TPU VM has without it.",
        f"{ALPHA} (BootDiskConfig.diskSizeGb); {DISKS} (100 GiB)",
    ),
    Rule(
        "disk_is_written_by_one_machine",
        "A data disk is a full path in the node's zone; in READ_WRITE, the default, only one machine may have it.",
        f"{DISKS} (access modes); {REST} (AttachedDisk)",
    ),
    Rule(
        "new_ssh_keys_let_in_at_once",
        "Keys that are put into a node's metadata while it runs are those of its accounts from then on.",
        "Compute Engine guest environment (docs.cloud.google.com/compute/docs/images/guest-environment), read 2025; "
        "gcloud 528 does so before its first ssh",
    ),
    Rule(
        "guest_attributes_show_host_keys",
        "A worker tells its host key as hostkeys/ssh-ed25519, once it is up, unless enable-guest-attributes is FALSE.",
        "gcloud 528, source; Compute Engine guest attributes (docs.cloud.google.com/compute/docs/metadata), read 2025",
    ),
    Rule(
        "zone_that_is_not_there_is_denied",
        "A zone that does not exist, or that the project may not use, is 403 with the reason LOCATION_POLICY_VIOLATED.",
        "orch_fronts/answers (tpu-location-policy-violated)",
    ),
    Rule(
        "type_is_sold_in_some_zones",
        "A type in a zone that Google does not list for it is INVALID_ARGUMENT, unless the scenario has pools there.",
        "orch_fronts/answers (tpu-type-not-in-zonal-configurations); data/tpu.toml",
    ),
    Rule(
        "quota_is_by_type_and_size",
        "In a new project each zone has quota by generation, market and, for v2, v3 and v5e, by size: 429.",
        "Cloud TPU quotas (cloud.google.com/tpu/docs/quota); data/tpu.toml; answers (tpu-serving-quota-v5e)",
    ),
    Rule(
        "hosts_take_addresses_and_instances",
        "Every host counts against INSTANCES, one with an external address against IN_USE_ADDRESSES of its region.",
        "data/tpu.toml; that a node tells it in its operation is modelled",
    ),
    Rule(
        "creates_have_a_rate",
        "Above the scenario's creates a minute a create is 429 until the minute is over.",
        "orch_fronts/answers (tpu-create-node-per-minute); the number is the scenario's",
    ),
)
