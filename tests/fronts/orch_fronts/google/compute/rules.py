"""What the Compute Engine front adds to the rules of the simulated cloud, each with its page or the word "modelled".

Each rule has a test of its name in tests/google_compute.
"""

from __future__ import annotations

from orchestrator.simulator.rules import Rule

REST = "compute v1, discovery document of 6 November 2026"
SLICES = "Create a MIG with multi-host TPU slice (docs.cloud.google.com/compute/docs/tpus), read November 2026"
LIFE = "Compute Engine instance lifecycle (docs.cloud.google.com/compute/docs/instances), read 2025"
SPOT = "Spot VMs (docs.cloud.google.com/compute/docs/instances/spot), read 2025"
FLEX = "About Flex-start VMs (docs.cloud.google.com/compute/docs/instances/about-flex-start-vms), read 2026"
GUEST = "Guest attributes (docs.cloud.google.com/compute/docs/metadata/manage-guest-attributes), read 2025"
REPORTS = "public reports of users, 2026"

RULES = (
    Rule(
        "unknown_field_is_refused",
        "A body or a query with a field that the message does not have is 400 and nothing is done.",
        f"{REST}; its schemas do the check",
    ),
    Rule(
        "request_id_makes_a_call_repeatable",
        "The same requestId answers the operation that the first call began, even when what it made is gone.",
        f"{REST} (requestId)",
    ),
    Rule(
        "name_is_rfc1035",
        "Lower-case letters, digits and inner hyphens, at most 63, a letter first.",
        f"{REST} (Instance.name)",
    ),
    Rule(
        "capacity_fails_in_the_operation",
        "An insert for which there is no room is accepted; its operation fails and no instance stays.",
        "Troubleshooting resource availability errors (ZONE_RESOURCE_POOL_EXHAUSTED); the time it takes is modelled",
    ),
    Rule(
        "group_waits_for_all_its_machines",
        "A group in the mode BULK makes all of its instances or none, tells why in its errors, and goes on trying.",
        f"{REST} (InstanceGroupManagerTargetSizePolicy.mode BULK); how often it tries is modelled",
    ),
    Rule(
        "topology_needs_bulk",
        "A group whose workload policy has a topology is refused without the mode BULK.",
        f"{REPORTS}: 'MIGs with TPU accelerator topology require BULK mode in target size policy'",
    ),
    Rule(
        "topology_says_the_size",
        "A group with a topology has as many instances as the topology's chips need.",
        f"{SLICES}; the words are modelled",
    ),
    Rule(
        "policy_needs_a_group",
        "A workload policy cannot be given to a single instance.",
        f"{REPORTS}: 400 'Resource policy must have one of ...'; the words are modelled",
    ),
    Rule(
        "flex_start_group_begins_empty",
        "A flex-start template is refused for a group with a target size; a resize asks for the machines.",
        "Create a MIG (docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig), note on flex-start, read 2026",
    ),
    Rule(
        "flex_start_has_a_length",
        "A flex-start instance needs maxRunDuration, at most seven days.",
        FLEX,
    ),
    Rule(
        "flex_start_waits",
        "A flex-start instance with requestValidForDuration is PENDING until there is room, or goes when time is up.",
        f"{FLEX}; {REST} (InstanceParams.requestValidForDuration)",
    ),
    Rule(
        "run_duration_deletes",
        "After maxRunDuration the termination action is done; DELETE here.",
        f"{REST} (Scheduling.maxRunDuration)",
    ),
    Rule(
        "preempted_instance_is_deleted",
        "What is preempted is STOPPING and then gone when its termination action is DELETE.",
        f"{SPOT}; how long it takes is modelled",
    ),
    Rule(
        "tpu_must_terminate",
        "An instance with TPUs is refused without onHostMaintenance TERMINATE.",
        f"{LIFE}: TPU VMs do not migrate; the words are modelled",
    ),
    Rule(
        "type_is_sold_in_some_zones",
        "A machine type that a zone does not sell is refused there: 'does not exist in zone'.",
        "gruntwork-io/terratest issue 1132 (2022) and taskcluster/community-tc-config pull request 75 quote the text",
    ),
    Rule(
        "gpu_and_spot_must_terminate",
        "An instance with GPUs, or of spot, is refused without onHostMaintenance TERMINATE; another one may migrate.",
        "public code quotes both texts (Terraform's acceptance tests; comments of 2020 to 2024)",
    ),
    Rule(
        "sequential_names_begin_at_one",
        "A base name that ends in hashes makes names with that many digits: vm-### is vm-001.",
        f"{REST} (InstanceGroupManager.baseInstanceName)",
    ),
    Rule(
        "member_belongs_to_its_group",
        "An instance of a group is not deleted, stopped or started by itself.",
        "modelled: the API lets it happen, and the slice is lost",
    ),
    Rule(
        "used_resource_cannot_be_deleted",
        "A template or a policy that a group uses is refused to be deleted: resourceInUseByAnotherResource.",
        "Troubleshooting instance templates (docs.cloud.google.com/compute/docs/instance-templates), read 2025",
    ),
    Rule(
        "guest_attributes_show_host_keys",
        "A running instance tells what its guest wrote; before that there is nothing: 404.",
        f"{GUEST}; what the start-up script writes is that of this project",
    ),
    Rule(
        "worker_knows_its_number",
        "Compute Engine tells each host of a slice its worker number; here it follows the names.",
        f"{REPORTS} (metadata agent-worker-number, tpu-env); that it follows the names is modelled",
    ),
    Rule(
        "external_address_only_when_asked",
        "An instance has an external address only with accessConfigs.",
        f"{REST} (NetworkInterface.accessConfigs)",
    ),
    Rule(
        "unreachable_scope_is_named",
        "An aggregated list that misses a zone names it in unreachables and in a warning of its scope.",
        f"{REST} (InstanceAggregatedList.unreachables)",
    ),
    Rule(
        "filter_is_of_equalities",
        "Lists take terms such as labels.key=value; what else a filter can say is refused.",
        f"{REST} (filter); the rest is not simulated",
    ),
    Rule(
        "firewall_rule_names_its_traffic",
        "A rule has either allowed or denied; without a source an ingress rule is for 0.0.0.0/0.",
        f"{REST} (Firewall)",
    ),
    Rule(
        "every_network_is_there",
        "Any network that is asked for exists.",
        "modelled",
    ),
)
