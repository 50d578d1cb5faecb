"""Every fault of other launchers on EC2 that we know of, and the test that orch has not got it.

test_aws_defects_table.py checks it. "SkyPilot": release 0.14.1, read or run against fakes, and its public issues. The
others: their public code and issues by repository and number, read until November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

LAUNCH = "aws_defects/test_aws_defects_launch.py::"
LEAKS = "aws_defects/test_aws_defects_leaks.py::"
REQUESTS = "aws_defects/test_aws_defects_requests.py::"
PLANNER = "aws/test_aws_planner.py::"
PROVIDER = "aws/test_aws_provider.py::"
RESERVED = "aws/test_aws_provider_reserved.py::"
FAULTS = "aws/test_aws_provider_faults.py::"
INTERFACES = "aws/test_aws_interfaces.py::"
USERDATA = "aws/test_aws_userdata.py::"
CHECK = "aws_check/test_aws_check.py::"
E2E = "cli/test_e2e_aws.py::"
CRASHES = "front_engine/test_front_crashes.py::"
EFA_ON_HOSTS = "render/test_run_efa.py::"
TRAINIUM = "render/test_run_trainium.py::"
GOLDEN = "render/test_render_golden.py::"


@dataclass(frozen=True)
class Defect:
    """tests: "file::name" below tests/. why_not: why there is nothing to test; exactly one of the two is given."""

    source: str
    fault: str
    tests: tuple[str, ...] = ()
    why_not: str = ""


def row(source: str, fault: str, *tests: str, why_not: str = "") -> Defect:
    return Defect(source, fault, tests, why_not)


NETWORK = (
    row(
        "skypilot#4062, skypilot#8391, skypilot#8450, skypilot#8475; dstack#1804, dstack#2270, dstack#2271",
        "with public addresses one EFA of 4 or 32 is there",
        REQUESTS + "test_hosts_that_can_be_reached_have_an_efa_on_every_card",
        PLANNER + "test_every_machine_has_an_elastic_ip_of_its_own_or_the_head_alone",
    ),
    row(
        "aws-ofi-nccl#53; libfabric#6; karpenter-provider-aws#5437, karpenter-provider-aws#5666; parallelcluster#7457",
        "a public address is asked for beside several interfaces, or cards are not told apart, and the launch fails",
        INTERFACES + "test_public_address_only_with_a_single_interface",
        INTERFACES + "test_layout_keeps_the_rules_of_the_guide",
        REQUESTS + "test_hosts_that_can_be_reached_have_an_efa_on_every_card",
    ),
    row(
        "dstack#3865, dstack#3940, dstack#3961; parallelcluster#7143",
        "new types have another layout: card 0 of p6-b300 has no EFA",
        INTERFACES + "test_b300_has_no_efa_on_card_0",
        INTERFACES + "test_table_of_counts_has_every_type_of_the_catalog",
    ),
    row(
        "launchers that take the interface with DeviceIndex 0",
        "each card has one under the new scheme: the address goes to the wrong one",
        PLANNER + "test_head_is_found_by_card_and_device",
        "aws/test_aws_provider_reach.py::test_the_first_interface_is_that_of_card_0_and_device_0",
    ),
    row(
        "aws-ofi-nccl#663; magic_castle#133",
        "the security group does not name itself in both directions",
        PLANNER + "test_hosts_reach_each_other_and_only_the_caller_reaches_port_22",
    ),
    row(
        "parallelcluster#3590",
        "a check takes a right security group for a wrong one",
        CHECK + "test_an_account_as_it_should_be",
    ),
    row(
        "dstack#1715; SkyPilot's placement groups",
        "no cluster placement group is ever used",
        PLANNER + "test_cluster_with_efa_is_made_in_the_order_that_its_parts_need",
        PLANNER + "test_nothing_is_made_that_is_not_needed",
    ),
    row(
        "dstack#1781, dstack#2474, dstack#3069; sagemaker-hyperpod-cli#306, sagemaker-hyperpod-cli#318",
        "machines with EFA do not use it: nobody asked",
        PLANNER + "test_count_of_interfaces_has_its_reason",
        EFA_ON_HOSTS + "test_all_interfaces_are_there",
    ),
    row(
        "sagemaker-hyperpod-cli#367",
        "EFA is looked for on machines that have none",
        EFA_ON_HOSTS + "test_nothing_is_counted_where_nothing_is_expected",
    ),
    row(
        "nccl#229, nccl#1597; aws-ofi-nccl#889",
        "EFA is missing, and NCCL goes on over TCP without a word",
        EFA_ON_HOSTS + "test_a_missing_interface_is_an_error_after_three_checks",
        EFA_ON_HOSTS + "test_only_the_head_prints_the_form_of_the_proof",
    ),
    row(
        "example scripts",
        "NCCL_IB_HCA, NCCL_NET_GDR_LEVEL and other variables that EFA does not want",
        GOLDEN + "test_no_script_sets_what_efa_does_not_want",
        "render/test_run_script.py::test_cuda_meets_over_the_network_and_leaves_nccl_alone",
    ),
)

CAPACITY = (
    row(
        "karpenter-provider-aws#7849",
        "an instance profile that was made a moment ago is invalid, and the launch fails",
        LAUNCH + "test_an_instance_profile_made_a_moment_ago_is_waited_for",
    ),
    row(
        "SkyPilot D7; skypilot#3687",
        "with more than one EFA the search ends at the first subnet; not all zones are tried",
        LAUNCH + "test_every_zone_is_asked_once_however_many_interfaces_there_are",
        LAUNCH + "test_the_last_zone_is_found_and_the_others_keep_nothing",
        LAUNCH + "test_subnets_that_are_named_are_all_tried",
        "engine/test_candidates.py::test_instances_are_tried_in_every_zone_of_the_regions_whose_price_is_known",
    ),
    row(
        "skypilot#975",
        "a zone without the type ends the search; a quota of 0 looks like a lack of machines",
        LAUNCH + "test_a_zone_that_has_not_the_type_is_passed_over",
        LAUNCH + "test_a_zone_that_lists_the_type_and_refuses_it_is_passed_over",
        LAUNCH + "test_a_region_that_does_not_offer_the_type_is_asked_once",
        LAUNCH + "test_a_region_without_quota_is_skipped_for_another_one",
        LAUNCH + "test_a_spent_quota_is_told_with_the_command_that_asks_for_more",
        LAUNCH + "test_a_quota_that_is_full_is_told_with_the_command_that_asks_for_more",
        LAUNCH + "test_a_quota_of_addresses_that_is_too_small_is_told_before_anything_is_made",
        LAUNCH + "test_what_may_not_be_asked_beforehand_does_not_stop_a_launch",
        FAULTS + "test_a_spent_quota_is_named_with_the_command_that_asks_for_more",
    ),
    row(
        "parallelcluster-node#673",
        "codes that mean no machines are missing in the list",
        LAUNCH + "test_every_code_that_means_no_machines_goes_on_to_the_next_zone",
        FAULTS + "test_a_refusal_is_an_error_of_its_class_and_sent_once",
    ),
    row(
        "awsome-distributed-ai#188, awsome-distributed-ai#189, awsome-distributed-ai#204; parallelcluster#6641",
        "'insufficient capacity' was the wrong zone, and nothing says so",
        PROVIDER + "test_no_capacity_in_the_zone_is_told_with_the_words_of_aws",
        PROVIDER + "test_a_zone_without_a_subnet_and_one_of_another_zone_are_no_place",
        E2E + "test_two_p5_train_together_in_the_zone_that_has_them",
    ),
    row(
        "skypilot#4155; dstack#1155",
        "a capacity block that begins later is not waited for; types without a price are not there",
        RESERVED + "test_a_block_that_has_not_begun_is_waited_for",
        REQUESTS + "test_types_without_a_price_can_be_asked_for_and_their_price_is_unknown",
    ),
    row(
        "skypilot#4765",
        "capacity blocks cannot be bought",
        "cli/test_cli_blocks.py::test_a_bought_block_is_printed_for_the_task_file_and_listed_with_its_time",
        "aws/test_aws_blocks.py::test_any_word_but_the_exact_price_buys_nothing",
    ),
    row(
        "parallelcluster#4061; skypilot#3039, skypilot#3852",
        "a reservation is not used; what it does not have is bought on demand, silently",
        RESERVED + "test_reserved_machines_are_had_where_they_are",
        RESERVED + "test_a_reservation_that_does_not_fit_is_told_before_anything_is_made",
        LAUNCH + "test_what_a_reservation_has_not_is_never_bought_on_demand",
        PLANNER + "test_market_in_the_words_of_ec2",
    ),
    row(
        "skypilot#2686, skypilot#7948",
        "Trainium2 cannot be launched by its name",
        REQUESTS + "test_trainium_and_new_gpus_are_launched_by_their_names",
    ),
    row(
        "boto3",
        "a RunInstances that found no machines is sent five times: its error is HTTP 500",
        LAUNCH + "test_no_setting_of_the_users_makes_boto3_ask_again",
        FAULTS + "test_a_read_is_repeated_by_the_library_and_a_change_is_not",
    ),
    row(
        "dstack#868",
        "an instance profile that EC2 does not know yet is taken for a lack of machines",
        LAUNCH + "test_an_instance_profile_that_ec2_does_not_know_is_no_lack_of_machines",
    ),
    row(
        "packer#5705; pycloudlib#192; boto3's waiters",
        "status checks are waited for; machines that take more than ten minutes are given up",
        LAUNCH + "test_machines_that_take_a_quarter_of_an_hour_come_up",
        REQUESTS + "test_no_waiter_of_boto3s_is_used",
    ),
    row(
        "dstack#2917, dstack#3130",
        "after a spot instance was taken the run is not begun again, or again and again",
        E2E + "test_four_trn1_on_spot_go_on_after_a_reclaim_and_after_down_by_resume",
        PROVIDER + "test_machines_that_are_taken_are_told_from_those_that_were_ended",
        "plan/test_recovery.py::test_losses_and_failures_never_spend_the_budget_of_the_other",
    ),
)

LEFT = (
    row(
        "skypilot#656; dstack#707",
        "two sets of machines for one job, after a failover or a lost answer",
        LAUNCH + "test_an_answer_that_was_lost_and_then_another_zone_are_not_two_slices",
        LAUNCH + "test_the_last_zone_is_found_and_the_others_keep_nothing",
        PROVIDER + "test_an_answer_that_was_lost_makes_no_second_one",
        "front_engine/test_ec2_machine.py::test_in_random_histories_on_ec2_no_slice_is_orphaned_and_down_leaves_nothing",
    ),
    row(
        "skypilot#4431, skypilot#4443",
        "machines that are not shown yet are taken for gone and forgotten",
        LEAKS + "test_a_launch_that_is_killed_leaves_nothing_after_down_also_when_ec2_shows_it_late",
        LEAKS + "test_a_launch_that_is_killed_is_gone_on_with_by_the_next_one_also_when_ec2_shows_it_late",
        PROVIDER + "test_a_look_that_misses_what_is_new_is_no_absence",
        PROVIDER + "test_the_end_of_what_is_not_shown_yet_comes_to_its_end",
    ),
    row(
        "skypilot#7022; dstack#138, dstack#2068; SkyPilot's server",
        "interrupted while machines are made, they go on being made",
        LEAKS + "test_ctrl_c_while_machines_are_made_gives_everything_back",
        CRASHES + "test_every_command_killed_around_a_request_leaks_nothing",
    ),
    row(
        "skypilot#3688",
        "security groups are left, and their names clash at the next launch",
        LEAKS + "test_names_are_free_again_for_the_next_launch",
        LEAKS + "test_what_the_first_zones_made_is_gone_before_the_last_one_is_used",
        PROVIDER + "test_the_end_takes_away_what_was_in_use_as_soon_as_it_is_not",
        PROVIDER + "test_a_name_that_is_somebody_elses_is_left_as_it_is",
        CRASHES + "test_the_matrix_finds_what_a_broken_provider_leaves",
    ),
    row(
        "skypilot#7205, skypilot#4392",
        "a launch while the last one is still ending; creations that timed out",
        LEAKS + "test_a_launch_while_the_last_one_is_still_going_away",
        PROVIDER + "test_an_effect_that_cannot_be_found_out_is_ended_by_the_next_command",
    ),
    row(
        "dstack#3453, dstack#3449; edge-endpoint#421; terraform#1200, terraform#16615, terraform#20718",
        "what a killed command had made is nobody's: it is not found, as only our own list is looked at",
        PROVIDER + "test_slices_of_every_region_are_listed_and_ended_without_a_record",
        PROVIDER + "test_a_region_that_does_not_answer_is_no_empty_list",
        CRASHES + "test_every_command_killed_around_a_request_leaks_nothing",
    ),
    row(
        "dstack#1551",
        "marked as terminated, and still billed",
        LEAKS + "test_what_is_not_gone_is_never_said_to_be",
        LEAKS + "test_an_end_that_is_never_done_is_no_success",
    ),
    row(
        "dstack#494",
        "ended in the console, and still shown as running",
        PROVIDER + "test_one_that_somebody_else_has_ended_spoils_the_slice",
    ),
    row(
        "granite.build#265",
        "a name is minted at launch and recorded only after it",
        LEAKS + "test_name_and_token_are_on_disk_before_the_first_request_that_makes_something",
        PLANNER + "test_everything_that_is_made_carries_the_tags_of_the_slice",
    ),
    row(
        "fak#15; marin-dna#564; openweights#79; cml#661, cml#1386",
        "machines run on when the launcher is gone",
        USERDATA + "test_machine_that_nobody_came_to_ends_after_an_hour",
        USERDATA + "test_machine_ends_when_its_time_is_over_and_no_other_timer_was_ever_set",
        PLANNER + "test_end_command_switches_the_machine_off",
    ),
)

SECRETS = (
    row(
        "SkyPilot's and dstack's firewall",
        "port 22 is opened to the world",
        PROVIDER + "test_the_group_lets_in_this_computer_only",
        PLANNER + "test_what_cannot_be_is_refused_with_its_reason",
        REQUESTS + "test_no_request_makes_a_role_a_key_pair_or_a_way_in_for_everybody",
    ),
    row(
        "Typhon#971; skypilot#3487; SkyPilot's role skypilot-v1",
        "hosts get a role that may do everything in EC2 and S3",
        REQUESTS + "test_no_request_makes_a_role_a_key_pair_or_a_way_in_for_everybody",
        REQUESTS + "test_no_policy_of_ours_gives_a_whole_service",
        "simulator_aws/test_aws_guard.py::test_the_hosts_policy_is_enough_for_one_prefix_of_one_bucket_and_for_nothing_else",
    ),
    row(
        "skypilot#2820, skypilot#3098; SkyPilot's cluster key",
        "credentials of this computer, and the key that opens all hosts, are copied to the hosts",
        LEAKS + "test_nothing_secret_of_this_computer_goes_to_the_machines",
    ),
    row(
        "skypilot#1614",
        "host keys are not looked at",
        PROVIDER + "test_every_host_has_its_own_place_and_key",
        USERDATA + "test_real_sshd_takes_the_rebuilt_key",
        "remote/test_failures.py::test_changed_host_key",
    ),
    row(
        "launchers that leave EC2's defaults",
        "IMDSv1 answers, and the root disk is not encrypted",
        PLANNER + "test_run_instances_says_what_a_launch_needs",
    ),
)

IMAGES = (
    row(
        "skypilot#7896; dstack's base image",
        "an image that ages in the code: Ubuntu 22.04, a Neuron build of long ago",
        "aws/test_aws_images.py::test_image_goes_by_chip_and_framework",
        "aws/test_aws_images.py::test_parameter_is_asked_of_ssm_and_a_named_image_of_nobody",
    ),
    row(
        "Neuron images of 2026",
        "the newest image cannot train with PyTorch on Trn1; PyPI's torch-neuronx is a placeholder",
        "aws/test_aws_images.py::test_trn1_is_pinned_to_the_last_sdk_that_trains_with_pytorch_there",
        "render/test_placeholder_packages.py::test_no_template_installs_a_placeholder",
    ),
    row(
        "SkyPilot's Neuron",
        "no rank, no cores, no cache of compiled graphs for Trainium",
        TRAINIUM + "test_pytorch_finds_its_cores_from_the_variables_of_torchrun",
        TRAINIUM + "test_jax_is_one_process_a_host",
        TRAINIUM + "test_compiled_graphs_are_kept_in_the_bucket_of_the_run",
    ),
    row(
        "aws-neuron-sdk#1338; aws-neuron-samples#44; aws-neuron-sagemaker-samples#9",
        "cores stay with a process that should be gone",
        "remote/test_jobs.py::test_kill_reaches_who_ignores_term_who_left_the_group_and_who_dropped_the_mark",
    ),
    row(
        "SkyPilot's catalog; DescribeInstanceTypes",
        "a Trainium2 has 512 GiB of memory",
        "catalog/test_ec2_rows.py::test_trainium2_memory_is_the_data_sheets_not_the_apis",
    ),
    row(
        "skypilot#4834",
        "a dry run needs credentials and the network, and shows no request",
        E2E + "test_a_dry_run_sends_nothing_loads_no_aws_library_and_writes_nothing",
        "aws/test_aws_differential.py::test_every_command_sends_what_boto3_sends",
    ),
)

DEFECTS = (*NETWORK, *CAPACITY, *LEFT, *SECRETS, *IMAGES)
