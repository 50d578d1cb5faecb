"""Every fault of other launchers on TPUs that we know of, and the test that orch has not got it.

test_google_defects_table.py checks it. "gcloud": experiments with gcloud 528.0.0 of June 2025. "SkyPilot": release
0.14.1, read or run against fakes, and its public issues. The others: their public code, and issues by repository and
number.
"""

from __future__ import annotations

from dataclasses import dataclass

WORKERS = "google_defects/test_google_defects_workers.py::"
MACHINES = "google_defects/test_google_defects_machines.py::"
E2E = "cli/test_e2e_google.py::"
LOCAL = "engine/test_drive_local.py::"
RULES = "catalog/test_tpu_rules.py::"


@dataclass(frozen=True)
class Defect:
    """tests: "file::name" below tests/. why_not: why there is nothing to test; exactly one of the two is given."""

    source: str
    fault: str
    tests: tuple[str, ...] = ()
    why_not: str = ""


def row(source: str, fault: str, *tests: str, why_not: str = "") -> Defect:
    return Defect(source, fault, tests, why_not)


GCLOUD = (
    row(
        "gcloud 1",
        "--worker=2-3: the command fails, gcloud exits 0",
        WORKERS + "test_a_command_that_fails_on_chosen_workers_gives_its_status_and_names_them",
    ),
    row(
        "gcloud 2",
        "a command that exits 255 is run ten times on every worker",
        WORKERS + "test_a_command_that_ends_with_255_ran_once_on_every_worker",
        "remote/test_failures.py::test_exit_code_255_is_an_exit_code",
    ),
    row(
        "gcloud 3",
        "--output-directory writes None/0.log and dies",
        WORKERS + "test_each_worker_has_a_log_of_its_own",
    ),
    row(
        "gcloud 4",
        "host keys are not verified for ~96 % of keys, and then six characters of them",
        WORKERS + "test_a_host_is_checked_by_its_whole_key_from_the_first_connection",
        "simulator_google/test_tpu_api_bodies.py::test_wrong_host_key_is_noticed_by_the_client",
        "remote/test_failures.py::test_changed_host_key",
    ),
    row(
        "gcloud 5",
        "output of workers is mixed without names; stdin reaches one random worker",
        WORKERS + "test_lines_of_workers_are_whole_and_say_whose_they_are",
        WORKERS + "test_standard_input_goes_to_no_worker_by_chance",
    ),
    row(
        "gcloud 6",
        "--ssh-flag documents %TPU%, which stays",
        WORKERS + "test_words_arrive_as_they_were_typed",
    ),
    row(
        "gcloud 7",
        "ssh --dry-run makes a key pair and imports it",
        WORKERS + "test_a_preview_makes_no_key_asks_nobody_and_writes_nothing",
        E2E + "test_a_dry_run_sends_nothing_loads_no_google_library_and_writes_nothing",
    ),
    row(
        "gcloud 8",
        "alpha --spot sends provisioningModel STANDARD beside spot; other words are dropped",
        MACHINES + "test_a_spot_request_says_spot_and_nothing_else",
        "google/test_google_requests.py::test_previewed_gcloud_command_sends_what_we_send",
    ),
    row(
        "gcloud 9",
        "ssh to nodes that could not be prepared: trace, '0 workers', exit 0",
        WORKERS + "test_hosts_that_are_gone_fail_the_command_and_are_named",
    ),
    row(
        "gcloud 10",
        "files cannot be fetched from several workers; a command is split at blanks",
        WORKERS + "test_files_of_several_workers_come_each_into_a_folder_of_its_own",
        WORKERS + "test_words_arrive_as_they_were_typed",
    ),
    row(
        "pytorch/xla#2342",
        "first connections race to make a key",
        WORKERS + "test_commands_at_once_do_not_disturb_each_other",
    ),
)

SKYPILOT = (
    row(
        "SkyPilot D1; skypilot#8482, skypilot#8481",
        "queued resources are never deleted",
        MACHINES + "test_a_queued_request_is_gone_after_down",
        MACHINES + "test_a_queued_request_that_got_nothing_in_time_is_gone",
        MACHINES + "test_every_queued_request_has_an_end_also_one_for_flex_start",
    ),
    row(
        "SkyPilot D2",
        "SUSPENDED and SUSPENDING end no wait",
        "google/test_google_observe.py::test_every_state_of_a_queued_resource_has_its_meaning",
        "google/test_google_end.py::test_suspending_resource_is_waited_for_and_then_deleted",
        E2E + "test_a_training_continues_after_a_preemption_by_itself_and_after_down_by_resume",
    ),
    row(
        "SkyPilot D3",
        "of several pending creates only the last is cancelled",
        MACHINES + "test_every_request_that_waits_is_cancelled_not_only_the_last",
    ),
    row(
        "SkyPilot D4",
        "the poll loop does not sleep",
        MACHINES + "test_every_request_that_waits_is_cancelled_not_only_the_last",
    ),
    row(
        "SkyPilot D5",
        "single hosts such as v6e-4 are called pods, so they cannot be stopped",
        RULES + "test_only_these_are_single_hosts",
        "google/test_google_power.py::test_names_with_digits_of_any_size_are_no_pod",
    ),
    row(
        "SkyPilot D6; skypilot#7990",
        "num_nodes: 2 of a pod asks for twice the hosts, and exec waits for ever",
        MACHINES + "test_hosts_are_slices_times_hosts_of_a_slice",
        E2E + "test_two_slices_are_one_request_and_a_failing_worker_is_named",
    ),
    row("SkyPilot D7", "failover stops after the first subnet", why_not="of EC2: its subnets and EFA cards"),
    row(
        "skypilot#4964, skypilot#2778",
        "disk_size is ignored on TPU VMs",
        MACHINES + "test_a_larger_disk_is_asked_for_and_not_ignored",
    ),
    row(
        "skypilot#3920",
        "reservations are refused",
        MACHINES + "test_a_slice_from_a_reservation_is_taken_from_it",
    ),
    row(
        "skypilot#4579",
        "'Insufficient reserved capacity' is shown raw, and nothing to do",
        "google/test_google_retries.py::test_every_kind_is_explained_with_something_to_do",
        E2E + "test_a_zone_without_machines_is_reported_and_the_next_one_is_taken",
    ),
    row(
        "skypilot#3840",
        "v4 sizes cannot be launched in us-central2-b",
        MACHINES + "test_v4_is_asked_for_where_it_is_by_its_own_name_and_image",
    ),
    row(
        "skypilot#1468, skypilot#1500, skypilot#1716, skypilot#1802",
        "preempted TPUs stay, take quota, and two nodes have one name",
        E2E + "test_a_preempted_node_is_ended_before_the_next_is_made",
    ),
    row(
        "skypilot#1748",
        "autostop on TPU nodes leaks the TPU",
        "google/test_google_startup.py::test_host_ends_what_it_belongs_to_with_its_own_token",
        "google/test_google_planner.py::test_every_host_is_told_what_to_delete_at_its_limit",
    ),
    row(
        "skypilot#1202, skypilot#1514",
        "down hangs on a TPU VM that the cloud no longer lists",
        MACHINES + "test_a_node_that_somebody_deleted_does_not_hold_up_down",
    ),
    row(
        "skypilot#3136, skypilot#3147, skypilot#5289, skypilot-catalog#31",
        "prices of TPUs are wrong, missing, or 700 as a stand-in",
        "catalog/test_prices.py::test_the_stand_in_for_unknown_v6e_prices_is_not_in_the_table",
        "catalog/test_prices.py::test_unknown_is_none_and_never_zero",
    ),
    row(
        "skypilot#738",
        "several TPU slices are not supported",
        MACHINES + "test_several_slices_are_counted_and_named_in_one_request",
    ),
    row("skypilot#3947", "multi-host TPUs on GKE", why_not="orch talks to TPU VMs over SSH and serves no Kubernetes"),
    row("skypilot#2661", "v5e came ten months late", why_not="of their calendar; every listed generation is served"),
    row(
        "SkyPilot's default image",
        "v5e gets the image of v5p",
        MACHINES + "test_v5e_gets_the_image_of_v5e",
    ),
    row(
        "SkyPilot's firewall",
        "port 22 is opened to the world",
        "google_access/test_google_access_rules.py::test_a_range_that_lets_in_the_world_is_refused",
        "google_access/test_google_access_rules.py::test_the_usual_rule_lets_in_one_address_to_one_port_of_these_hosts",
    ),
    row(
        "skypilot#6362, skypilot#9607",
        "flex-start comes up as a standard machine",
        MACHINES + "test_every_queued_request_has_an_end_also_one_for_flex_start",
    ),
)

MARIN = (
    row(
        "marin#87; levanter#666",
        "suspended requests are left behind and eat the quota",
        E2E + "test_a_training_continues_after_a_preemption_by_itself_and_after_down_by_resume",
        "google/test_google_end.py::test_end_leaves_neither_queued_resource_nor_node",
    ),
    row(
        "marin#2739, marin#3421",
        "a preempted slice stays; one dead host leaves the others",
        E2E + "test_a_preempted_node_is_ended_before_the_next_is_made",
    ),
    row(
        "marin#4724; Iris",
        "given up here, fulfilled there 70 minutes later",
        MACHINES + "test_a_queued_request_that_got_nothing_in_time_is_gone",
        E2E + "test_ctrl_c_while_machines_are_waited_for_takes_the_request_out_of_the_queue",
    ),
    row(
        "marin#5753, marin#6432",
        "a preempted job is reported as failed; the death of a peer as the user's failure",
        LOCAL + "test_a_preempted_host_brings_a_new_slice_and_the_next_attempt",
        "plan/test_recovery.py::test_losses_and_failures_never_spend_the_budget_of_the_other",
    ),
    row(
        "marin#5237",
        "one slice of a gang is preempted and the others wait for it",
        "simulator_google/test_tpu_api_queue.py::test_lost_slice_suspends_all",
        LOCAL + "test_the_first_failure_stops_the_others_and_its_code_passes_through",
    ),
    row(
        "marin#4689, marin#4783, marin#5258; tpu-inference#2629",
        "the device is busy after a hand-over; a kill lets two jobs share chips",
        "render/test_accelerator_holders.py::test_a_stale_holder_is_ended_before_the_program_starts",
        "render/test_accelerator_holders.py::test_a_holder_that_ignores_term_gets_time_and_then_kill",
    ),
    row(
        "levanter#1113; jax#10192, jax#13260",
        "the lock of libtpu is removed before its holder, or stays without one",
        "render/test_accelerator_holders.py::test_the_lock_goes_only_when_a_chip_is_here",
        "render/test_accelerator_holders.py::test_a_job_that_still_runs_keeps_its_chips_and_its_lock",
    ),
    row("marin#4120", "a host that crashes again and again is used again", why_not="a lost slice is replaced whole"),
    row(
        "marin#3219; levanter#1160, levanter#1202; axlearn#994",
        "hosts are counted wrongly from the name",
        RULES + "test_hosts_that_are_often_counted_wrong",
        "google/test_google_observe.py::test_hosts_other_than_planned_are_a_failure_before_anything_is_sent_to_them",
    ),
    row(
        "marin#8136",
        "bucket and machines are in different regions, and nobody says so",
        "catalog/test_bucket_places.py::test_how_a_region_reaches_a_bucket",
    ),
    row(
        "marin#5217",
        "a resume elsewhere takes an older checkpoint",
        "storage/test_storage_checkpoints.py::test_the_newest_complete_checkpoint_is_found",
    ),
    row(
        "marin#2677",
        "the stream of the log is empty",
        WORKERS + "test_each_worker_has_a_log_of_its_own",
    ),
    row(
        "marin#3547",
        "reserving and attaching are confused",
        why_not="orch has no holding of machines without a cluster",
    ),
    row(
        "levanter#854; marin#1910",
        "no way to use a TPU VM that is there",
        "docs/test_docs_google.py::test_command_of_the_page_does_what_the_page_says",
    ),
    row(
        "Levanter launch",
        "success on the last try raises; spot breaks the command; secrets are printed; no prefix for several slices",
        LOCAL + "test_a_secret_reaches_the_program_and_nothing_else",
        LOCAL + "test_a_preempted_host_brings_a_new_slice_and_the_next_attempt",
        MACHINES + "test_several_slices_are_counted_and_named_in_one_request",
        MACHINES + "test_a_spot_request_says_spot_and_nothing_else",
    ),
    row(
        "levanter#657",
        "a wish for capacity is ignored silently",
        "engine/test_candidates.py::test_each_market_becomes_its_kind_of_request",
    ),
)

OTHERS = (
    row(
        "MaxText runner",
        "the status of main is lost; a death by signal counts as success; a kill waits for ever; v6e is not scanned",
        WORKERS + "test_a_program_that_ends_by_a_signal_has_failed_with_it",
        E2E + "test_two_slices_are_one_request_and_a_failing_worker_is_named",
        "render/test_accelerator_holders.py::test_a_holder_that_ignores_term_gets_time_and_then_kill",
        "remote/test_fleet.py::test_a_command_over_its_limit_is_ended_on_the_host_too",
    ),
    row(
        "xpk",
        "deaths by signals are no failures",
        WORKERS + "test_a_program_that_ends_by_a_signal_has_failed_with_it",
        LOCAL + "test_a_program_killed_by_a_signal_is_a_failure_with_its_signal",
    ),
    row(
        "Ray pod runner",
        "a copy that fails on one host is swallowed; only the output of worker 0 is returned",
        LOCAL + "test_a_copy_that_fails_on_one_host_names_it",
        WORKERS + "test_each_worker_has_a_log_of_its_own",
    ),
    row(
        "EOpod",
        "failed runs exit 0; $VAR is expanded on the wrong side; v5e is not scanned; jobs share one log",
        WORKERS + "test_a_command_that_fails_on_chosen_workers_gives_its_status_and_names_them",
        WORKERS + "test_words_arrive_as_they_were_typed",
        WORKERS + "test_each_worker_has_a_log_of_its_own",
        "render/test_accelerator_holders.py::test_a_stale_holder_is_ended_before_the_program_starts",
    ),
    row(
        "tpc",
        "a command is in double quotes inside a shell text; create drops spot and reserved",
        WORKERS + "test_words_arrive_as_they_were_typed",
        MACHINES + "test_a_spot_request_says_spot_and_nothing_else",
        MACHINES + "test_a_slice_from_a_reservation_is_taken_from_it",
    ),
    row(
        "tpu_pod_launcher, podrun",
        "statuses are never read",
        WORKERS + "test_a_command_that_fails_on_chosen_workers_gives_its_status_and_names_them",
    ),
    row(
        "tpunicorn",
        "a create that fails ends it before its loop of tries",
        E2E + "test_a_zone_without_machines_is_reported_and_the_next_one_is_taken",
    ),
    row(
        "accelerate tpu-config",
        "says success whatever happened",
        WORKERS + "test_a_command_that_fails_on_chosen_workers_gives_its_status_and_names_them",
    ),
    row(
        "AXLearn",
        "commands are quoted by hand through three shells",
        WORKERS + "test_words_arrive_as_they_were_typed",
        "remote/test_scripts.py::test_any_argument_arrives_unchanged_through_any_login_shell",
    ),
    row(
        "axlearn#716, axlearn#786; xla_dist",
        "a program that hangs runs on for half an hour",
        "engine/test_hang_end_to_end.py::test_a_rank_that_stops_before_the_others_is_named_and_the_next_attempt_succeeds",
    ),
    row(
        "dstack#1337, ray#25223",
        "slices of several hosts are not served; v4-8 is taken for one",
        WORKERS + "test_lines_of_workers_are_whole_and_say_whose_they_are",
        RULES + "test_only_these_are_single_hosts",
    ),
    row(
        "dstack#1397, dstack#2917",
        "a run ends as interrupted, spot is not tried again",
        E2E + "test_a_preempted_node_is_ended_before_the_next_is_made",
    ),
    row(
        "accelerate#501, accelerate#3325, accelerate#471",
        "PyTorch/XLA cannot be started on all hosts of a slice",
        "render/test_run_script.py::test_xla_uses_the_tpu_unless_configured_otherwise",
    ),
    row(
        "jax#12456, jax#19971, jax#22436",
        "the program hangs when it starts on one host only, or one dies",
        LOCAL + "test_every_host_runs_the_program_with_its_own_rank",
        LOCAL + "test_the_first_failure_stops_the_others_and_its_code_passes_through",
    ),
    row(
        "fak#15, marin-dna#564",
        "machines are billed after the launcher was killed",
        "remote/test_limits_on_hosts.py::test_hosts_end_at_the_deadline_of_a_budget_without_the_orchestrator",
    ),
)

DEFECTS = (*GCLOUD, *SKYPILOT, *MARIN, *OTHERS)
