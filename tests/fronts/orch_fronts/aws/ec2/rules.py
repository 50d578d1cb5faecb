"""What the pretend EC2 adds to the rules of the simulated cloud, each with its public page or the word "modelled".

Each rule has a test of its name in tests/simulator_aws.
"""

from __future__ import annotations

from orchestrator.simulator.rules import Rule

GUIDE = "EC2 User Guide, read November 2026"
API = "EC2 API reference, read November 2026"
ERRORS = "Error codes for the Amazon EC2 API, read November 2026"
NETWORK = f"{GUIDE} (multiple network cards; Elastic Fabric Adapter)"
BLOCKS = f"{GUIDE} (Capacity Blocks for ML)"
IDEMPOTENCY = "EC2 Developer Guide, Ensuring idempotency, read November 2026"

RULES = (
    Rule(
        "unknown_parameter_is_refused",
        "A parameter that the operation does not have is refused, and so is an operation that is not there.",
        f"{ERRORS} (UnknownParameter, InvalidAction); botocore's own model says what there is",
    ),
    Rule(
        "same_token_answers_the_same_instances",
        "RunInstances with the same client token and parameters answers the instances of the first call.",
        IDEMPOTENCY,
    ),
    Rule(
        "same_token_with_other_parameters_is_refused",
        "The same client token with other parameters is IdempotentParameterMismatch and launches nothing.",
        IDEMPOTENCY,
    ),
    Rule(
        "token_is_of_one_zone",
        "The same client token in another region, or in another zone that the call names, is another request.",
        f"{IDEMPOTENCY} (other regions); that a named zone counts as well is modelled",
    ),
    Rule(
        "after_the_end_the_token_is_refused",
        "When its instances have been terminated the same request is IdempotentInstanceTerminated, for 24 hours.",
        f"{ERRORS}; its text: boto3 issue 4406, January 2025, until which the terminated instances were answered; the "
        "24 hours: EC2 User Guide of 2013 (Ensuring idempotency)",
    ),
    Rule(
        "between_least_and_most",
        "A launch has as many instances as there is room for, up to MaxCount; below MinCount it launches none.",
        f"{API} (RunInstances, MinCount and MaxCount)",
    ),
    Rule(
        "no_capacity_is_a_server_error",
        "InsufficientInstanceCapacity comes with HTTP 500, and names zones that may have some.",
        f"{ERRORS}; the status as measured in public issues",
    ),
    Rule(
        "type_is_offered_in_some_zones",
        "A type that the zone or the region does not have is Unsupported; what they have, aws/data/ec2.toml says.",
        f"{ERRORS} (Unsupported); SkyPilot issue 975; orch_fronts/answers (ec2-unsupported-az-m5)",
    ),
    Rule(
        "type_without_on_demand_is_unsupported",
        "A type that is only sold as spot or as Capacity Blocks is Unsupported on demand.",
        "price tables of 2026 (p5e, trn2 have no on-demand price); the code is modelled",
    ),
    Rule("unknown_type_is_refused", "A type that nobody knows is InvalidParameterValue.", ERRORS),
    Rule(
        "quotas_count_vcpus",
        "In a new account the vCPUs of a family count against its quota in the region, apart for on demand and spot.",
        "aws/data/quotas.toml; orch_fronts/answers (ec2-vcpu-0, ec2-max-spot)",
    ),
    Rule(
        "quota_counts_against_the_region",
        "Above the scenario's quota a launch is VcpuLimitExceeded, or MaxSpotInstanceCountExceeded for spot.",
        f"{ERRORS}; that the quota counts hosts or chips, not vCPUs, is modelled",
    ),
    Rule(
        "position_is_a_card_and_a_device",
        "No two interfaces are on one network card with one device index, and there must be one on card 0, device 0.",
        f"{NETWORK}; the codes are modelled",
    ),
    Rule(
        "card_holds_so_many_interfaces",
        "A card that the type does not have, or more interfaces on one than it holds, is refused.",
        f"{NETWORK}; DescribeInstanceTypes (NetworkCards); the codes are modelled",
    ),
    Rule(
        "efa_only_where_there_is_one",
        "EFA interfaces need a type and a card that has EFA, and there is one on a card.",
        f"{NETWORK}; the codes are modelled",
    ),
    Rule(
        "efa_only_is_never_primary",
        "An efa-only interface cannot be on card 0, device 0, and no field may give it an IP address.",
        f"{NETWORK} (InvalidParameterValue)",
    ),
    Rule(
        "efa_only_takes_no_address",
        "An efa-only interface takes no address of the subnet; an interface and an efa take one each.",
        NETWORK,
    ),
    Rule(
        "public_address_only_with_one_interface",
        "AssociatePublicIpAddress with several interfaces is InvalidParameterCombination.",
        f"{API} (InstanceNetworkInterfaceSpecification); SkyPilot issue 4062",
    ),
    Rule(
        "public_address_by_itself_only_with_one_interface",
        "A default subnet gives a public address to an instance with one interface, and to no other.",
        f"{GUIDE} (instance addressing): not with several interfaces",
    ),
    Rule(
        "public_address_is_there_while_it_runs",
        "A public address that came by itself is there while the instance runs; a stop gives it back.",
        f"{GUIDE} (instance addressing)",
    ),
    Rule(
        "subnet_and_groups_stand_in_the_interfaces",
        "With interfaces in the request no subnet and no groups may stand beside them.",
        f"{API} (RunInstances); the code InvalidParameterCombination as quoted in public issues",
    ),
    Rule(
        "subnet_must_fit_the_zone",
        "An unknown subnet, or one in another zone than the placement, is refused.",
        f"{ERRORS} (InvalidSubnetID.NotFound); the other code is modelled",
    ),
    Rule(
        "subnet_has_so_many_addresses",
        "A launch that needs more addresses than the /20 has free is InsufficientFreeAddressesInSubnet.",
        f"{ERRORS}; Amazon VPC User Guide (default subnets are /20, five addresses are reserved)",
    ),
    Rule(
        "placement_group_must_exist",
        "A launch into a placement group that is not there is InvalidPlacementGroup.Unknown.",
        ERRORS,
    ),
    Rule(
        "cluster_group_has_one_zone",
        "A cluster placement group with instances takes no launch in another zone.",
        f"{GUIDE} (placement groups); the code is modelled",
    ),
    Rule(
        "stoppable_spot_cannot_enter_a_placement_group",
        "A spot instance that an interruption stops or hibernates cannot be in a placement group.",
        f"{GUIDE} (placement groups, limitations); the code is modelled",
    ),
    Rule("placement_group_name_is_taken", "A second group of a name is InvalidPlacementGroup.Duplicate.", ERRORS),
    Rule(
        "placement_group_in_use_stays",
        "While an instance in it has not ended a group is InvalidPlacementGroup.InUse.",
        ERRORS,
    ),
    Rule(
        "reservation_fits_its_zone_and_type",
        "A targeted reservation serves its own zone, type and number; else ReservationCapacityExceeded.",
        f"{ERRORS} (compatible and available capacity)",
    ),
    Rule(
        "target_wants_no_preference",
        "CapacityReservationPreference beside a target may only be capacity-reservations-only.",
        f"{API} (CapacityReservationSpecification)",
    ),
    Rule(
        "block_needs_its_market_and_its_target",
        "A Capacity Block is launched into with the market capacity-block and its reservation as the target.",
        f"{BLOCKS}; the codes are modelled",
    ),
    Rule(
        "block_is_not_there_before_its_start",
        "Before its start, and from 30 minutes before its end, a launch into a block is refused.",
        f"{BLOCKS}; the code InvalidCapacityReservationState is modelled",
    ),
    Rule(
        "block_takes_its_machines_before_its_end",
        "From 30 minutes before its end the instances in a block are terminated.",
        f"{BLOCKS}; the StateReason is modelled",
    ),
    Rule(
        "block_lasts_days_or_weeks",
        "A block lasts 1 to 14 days, or a multiple of 7 days up to 182, and has at most 64 instances.",
        BLOCKS,
    ),
    Rule("block_begins_at_half_past_eleven", "A block begins at 11:30 UTC.", BLOCKS),
    Rule(
        "block_is_paid_then_scheduled",
        "A bought block is payment-pending, scheduled, active, expired; an offering is sold once.",
        f"{API} (CapacityReservation.State); how long the payment takes is modelled",
    ),
    Rule(
        "group_name_is_taken",
        "A second security group of a name in the VPC is InvalidGroup.Duplicate.",
        ERRORS,
    ),
    Rule(
        "second_rule_of_the_kind_is_refused",
        "A rule that is there is InvalidPermission.Duplicate; a new group lets everything out.",
        ERRORS,
    ),
    Rule(
        "revoked_rule_is_named_by_its_values",
        "A rule is revoked by protocol, ports and source, without its description; one that is absent is no error.",
        f"{API} (RevokeSecurityGroupIngress, for a group of a default VPC)",
    ),
    Rule(
        "group_in_use_stays",
        "A group that an instance has, until it is terminated, or that a rule names, is DependencyViolation.",
        f"{ERRORS}; {API} (DeleteSecurityGroup)",
    ),
    Rule("five_elastic_ips", "A region has five Elastic IP addresses, then AddressLimitExceeded.", ERRORS),
    Rule(
        "allocate_has_no_token",
        "AllocateAddress takes no token: each call is one more address.",
        f"{IDEMPOTENCY} (not in the list)",
    ),
    Rule(
        "elastic_ip_by_instance_only_with_one_interface",
        "An address is put on an instance by its id only when it has one interface.",
        f"{API} (AssociateAddress)",
    ),
    Rule(
        "elastic_ip_waits_for_the_instance",
        "An address is not put on an instance that is pending.",
        "messages quoted in public issues (The pending instance ... is not in a valid state)",
    ),
    Rule(
        "associate_can_be_asked_again",
        "The same association again is answered with the first; another is refused unless reassociation is allowed.",
        f"{API} (AssociateAddress); {IDEMPOTENCY}",
    ),
    Rule(
        "elastic_ip_outlives_the_instance",
        "When its instance ends an address is on nothing, and is still ours until it is released.",
        f"{GUIDE} (Elastic IP addresses)",
    ),
    Rule(
        "release_takes_the_address_from_its_instance",
        "An address that is released leaves the instance that it was on.",
        f"{API} (ReleaseAddress, default VPC; in another VPC it is InvalidIPAddress.InUse)",
    ),
    Rule("dry_run_does_nothing", "A dry run that would have succeeded is DryRunOperation, HTTP 412.", ERRORS),
    Rule(
        "terminate_can_be_asked_again",
        "Terminating what has ended is no error; an unknown id among them lets the call do nothing.",
        f"{API} (TerminateInstances); {ERRORS}",
    ),
    Rule(
        "each_instance_ends_alone",
        "Some instances of a launch can be terminated and the others go on.",
        f"{API} (TerminateInstances)",
    ),
    Rule(
        "terminated_instance_is_shown_for_a_while",
        "A terminated instance is shown for an hour, without addresses.",
        f"{GUIDE} (terminated instances remain visible a while)",
    ),
    Rule(
        "unknown_instance_is_told_from_a_malformed_id",
        "InvalidInstanceID.NotFound and InvalidInstanceID.Malformed are two things.",
        ERRORS,
    ),
    Rule(
        "new_instance_may_not_be_found_yet",
        "Within the scenario's lag a new instance is missing in a listing and InvalidInstanceID.NotFound by its id.",
        f"{GUIDE} (eventual consistency)",
    ),
    Rule(
        "what_was_launched_together_stops_together",
        "Stopping or starting a part of a launch is refused.",
        "modelled: EC2 itself stops single instances",
    ),
    Rule(
        "one_time_spot_cannot_be_stopped",
        "A spot instance of a one-time request cannot be stopped.",
        f"{GUIDE} (spot requests); the words as quoted in public issues",
    ),
    Rule(
        "shutdown_from_inside_does_what_the_launch_said",
        "A machine that powers itself off is stopped or terminated, as the launch said.",
        f"{API} (InstanceInitiatedShutdownBehavior)",
    ),
    Rule(
        "spot_request_tells_why_its_instance_ended",
        "When spot takes an instance it ends by itself, with Server.SpotInstanceTermination, and its request closes.",
        f"{API} (StateReason); {GUIDE} (spot request status)",
    ),
    Rule(
        "cancelled_spot_request_leaves_the_instance",
        "Cancelling a spot request does not end its instance.",
        f"{API} (CancelSpotInstanceRequests)",
    ),
    Rule(
        "late_failure_ends_the_instance",
        "A launch that fails afterwards is terminated with Server.InsufficientInstanceCapacity or InternalError.",
        f"{API} (StateReason)",
    ),
    Rule(
        "dead_host_is_stopped",
        "An instance whose host died is stopped with Server.ScheduledStop, and the others go on.",
        f"{GUIDE} (instance retirement); that it happens so soon is modelled",
    ),
    Rule(
        "user_data_has_a_limit",
        "More than 16,384 bytes of user-data, before base64, are refused.",
        f"{GUIDE} (user data)",
    ),
    Rule(
        "root_volume_holds_the_image",
        "A root volume smaller than the image is InvalidBlockDeviceMapping.",
        "messages quoted in public issues",
    ),
    Rule(
        "tags_have_limits",
        "At most 50 tags, keys up to 128 and values up to 256 characters, none begins with aws:, none comes twice.",
        f"{GUIDE} (tags)",
    ),
    Rule(
        "tagged_kinds_belong_to_the_call",
        "TagSpecifications may name only what the call makes; a spot request only when it is one.",
        f"{API} (TagSpecification)",
    ),
    Rule(
        "tags_are_added_to_those_that_are_there",
        "CreateTags adds and overwrites, DeleteTags removes, and filters see them at once. What is absent is refused, "
        "an instance with InvalidInstanceID.NotFound.",
        f"{API} (CreateTags, DeleteTags); packer issue 1367 (instance); InvalidID for others is modelled",
    ),
    Rule(
        "filters_join_values_by_or",
        "Values of a filter are joined by OR, filters by AND; `*` and `?` are wild; an unknown filter is refused.",
        f"{GUIDE} (list and filter)",
    ),
    Rule(
        "page_may_be_smaller_than_asked",
        "A listing has as many items as were asked for or fewer, and may end within a reservation.",
        f"{API} (DescribeInstances); that no page has more than the scenario's is modelled",
    ),
    Rule(
        "ids_and_pages_do_not_go_together",
        "DescribeInstances with ids and MaxResults is InvalidParameterCombination.",
        f"{API} (DescribeInstances)",
    ),
    Rule(
        "image_is_found_by_id_parameter_or_filter",
        "An image is named by its id or as resolve:ssm:PARAMETER; DescribeImages finds it by owner and filters.",
        f"{GUIDE} (find an AMI)",
    ),
    Rule(
        "every_region_has_a_default_vpc",
        "Each region has a default VPC with a default subnet in each zone.",
        "Amazon VPC User Guide (default VPCs), read November 2026",
    ),
)
