"""What SECURITY.md, docs/storage.md and docs/bundles.md promise, and which tests keep it.

A promise is taken back, or changed, together with its tests: its words must stand on the page, and its tests be there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {
    "SECURITY": "SECURITY.md", "storage": "docs/storage.md", "namespaces": "docs/namespaces.md",
    "bundles": "docs/bundles.md",
}  # fmt: skip
PACKAGES = ("components", "console", "data", "engine", "metadata", "pipelines", "report", "serving")

PROMISES = """
SECURITY: No pickle in any artifact, table or message between processes
  test_no_module_unpickles test_bundle_fn_travels_by_name
SECURITY: a bundle is verified by digest before it is used
  test_every_file_is_listed_with_its_digest_and_the_manifest_with_its_own test_fuzzed_files_never_do_more_than_refuse
SECURITY: loading one runs none of its author's Python
  test_a_program_that_calls_back_is_refused test_any_graph_is_refused_or_runs
SECURITY: calls no kernel with types that its operands do not imply
  test_a_kernel_with_types_that_lie_is_refused test_linear_algebra_is_no_stranger
SECURITY: run it in a child process with limits on time, memory (on Linux) and files
  test_a_program_that_means_harm_ends_in_an_error test_a_child_writes_no_file_and_says_so_no_more_after_its_end
SECURITY: Signed bundles are verified offline by a P-256 key
  test_what_is_not_signed_by_that_key_is_refused test_a_signature_of_model_signing_is_read
SECURITY: no `..`, no links out of the root, no other scheme
  test_bad_uris_are_refused_everywhere test_links_are_not_followed test_whatever_resolves_lies_below_the_root
SECURITY: SQL takes values only as bound parameters
  test_no_text_becomes_sql
SECURITY: content security policy lets it load and send nothing
  test_a_page_loads_and_sends_nothing
SECURITY: In a notebook it is shown in a frame without an origin
  test_framed_pages_are_attributes test_frames_of_a_notebook_do_not_clash
SECURITY: A URL with a password, a token or a signature is refused as a parameter
  test_a_url_with_a_secret_is_refused_and_not_shown
SECURITY: are redacted from logs, notes, errors, tracebacks, the terminal
  test_a_secret_is_redacted_however_it_is_spelled test_what_nodes_print_is_kept_without_secrets
  test_a_summary_holds_no_secret test_who_follows_a_log_misses_nothing_where_secrets_are_taken_out
SECURITY: No character ends a password there
  test_no_character_ends_a_password test_passwords_with_signs_in_them
SECURITY: a parameter is known by the last word of its name
  test_a_parameter_with_a_secret_is_known_by_its_name test_a_word_that_holds_another_is_not_taken_for_it
SECURITY: what a component records (metrics' names, artifacts' properties, summaries)
  test_what_a_component_records_holds_no_secret
SECURITY: wrapped or folded too
  test_a_secret_is_redacted_where_it_is_folded test_a_text_in_pieces_is_redacted_as_a_whole
SECURITY: Control characters in data, names and errors are printed as
  test_what_steers_a_terminal_is_written_out test_what_results_say_of_themselves_does_not_steer_a_terminal
  test_an_error_that_python_prints_does_not_steer_a_terminal
SECURITY: one watches whether the verbs look up a name or connect
  test_a_socket_that_leaves_this_machine_fails_its_test test_no_verb_asks_another_machine
SECURITY: makes no constant of more than 256 MiB
  test_what_a_file_makes_of_nothing_is_bounded test_weights_outside_the_folder_are_not_read
SECURITY: listens at this machine alone unless it is told otherwise
  test_a_port_that_is_taken_and_an_address_without_versions
SECURITY: limits what a client may send in size and
  test_slow_clients_are_closed test_too_many_connections_are_closed test_ten_thousand_broken_requests
SECURITY: refuses what two parsers might read differently
  test_what_is_no_request_is_refused
SECURITY: answers nobody without a known key but for its health, over HTTP and gRPC
  test_a_request_needs_one_known_key test_every_grpc_method_asks_for_a_key test_what_a_key_may
SECURITY: does for each what its roles allow in its namespaces
  test_a_reader_reads test_a_writer_neither_approves_nor_collects
  test_another_namespace_is_refused_as_one_that_is_not_there
SECURITY: it looks at the key before it reads a body
  test_a_key_is_looked_at_before_the_body_and_may_ask_only_so_often
SECURITY: refuses to listen beyond this machine in plain text unless told so
  test_keys_leave_no_machine_in_plain_text
SECURITY: Clients take the key from the environment or a file, never from a URL
  test_the_key_comes_from_a_file_and_is_shown_nowhere test_urls_that_cannot_be
SECURITY: serves no version that this key has not signed
  test_the_last_version_that_is_signed_goes_on test_no_request_undoes_a_key
  test_a_version_that_sleeps_is_checked_before_and_when_it_wakes
SECURITY: its page, which holds nothing of the models, asks for one
  test_it_needs_no_key_and_what_it_asks_does
SECURITY: Without keys, pages of other addresses change nothing
  test_only_its_own_page_changes_traffic_without_keys test_pages_of_this_server_are_told_from_others
SECURITY: no key is in its errors or logs
  test_a_request_needs_one_known_key test_the_file_is_read_again test_a_wrong_file_says_what_is_wrong
SECURITY: it answers only clients whose certificate that authority signed
  test_clients_need_certificates
SECURITY: an error that tells nothing of what is
  test_a_model_that_fails_tells_nothing_of_what_is_inside
SECURITY: CI carries out the same cases on each change
  test_an_attack_finds_nothing test_a_longer_attack_finds_nothing
SECURITY: no redirection is followed, and what leaves this machine
  test_an_answer_that_is_no_success test_what_is_not_encrypted_stays_on_this_machine
SECURITY: Secrets stand there by reference, and are in no record, log or error of
  test_no_secret_is_anywhere test_a_secret_is_read_where_it_stands_and_redacted
SECURITY: `make attack SEED=…` repeats them
  test_equal_seeds_draw_equal_cases
storage: another URL for the same store is refused
  test_a_store_remembers_where_its_artifacts_lie
storage: `--root s3://…` is refused
  test_a_root_that_is_a_url
storage: no error or record prints one
  test_no_secret_is_shown test_bad_uris_are_refused_behind_a_url
storage: an output without a complete manifest does not exist
  test_a_manifest_that_was_half_written_is_none test_the_manifest_comes_last
storage: so that it is complete there too
  test_a_share_holds_whole_files_only
storage: is stored as `_named-<digest>`
  test_names_that_a_store_may_misread_are_digests_there_and_empty_folders_nothing
storage: Up to 8 files are sent at once
  test_at_most_eight_files_are_moved_at_once test_a_large_file_goes_in_parts
storage: less than 400 MiB of memory for files of any size
  test_a_file_of_any_size_takes_bounded_memory
storage: Its size must match, and its checksum
  test_a_store_that_cuts_files_is_told_of test_checksums_are_believed_when_they_are_some
storage: are retried after 0.5, 1, 2, 4, 8 and 16 s
  test_pauses_are_those_that_the_page_says test_what_passes_is_tried_again
storage: Permanent ones (no bucket, no permission, no credentials) are one error at once
  test_a_bucket_that_is_not_there test_no_right_and_no_credentials
storage: must bring 64 KiB of content, or its end, in each 60 s
  test_an_answer_without_end_is_given_up test_a_long_answer_may_take_longer_than_one_period
storage: An interrupted upload continues
  test_an_upload_that_failed_goes_on_without_the_component test_a_killed_upload_goes_on_where_it_stopped
storage: With `--no-cache` only the same run continues the upload
  test_who_wants_it_anew_gets_it_anew
storage: Uploads that nobody continues for a week are removed
  test_what_nobody_goes_on_with_is_removed_after_a_week
storage: they send the same bytes to the same names
  test_two_publish_the_same_at_once test_two_publishers_at_once
storage: leaves an orphaned payload, never a row without a payload
  test_forty_kills_while_publishing_leave_no_row_without_its_payload
storage: so data that was changed in the bucket is refused
  test_every_change_is_seen test_the_stores_word_is_what_counts
storage: a copy is verified once more and repaired if needed
  test_after_a_power_loss_a_copy_is_mended test_a_copy_from_before_the_machine_was_started_is_compared_again
storage: one fetches it under a lock that ends with its process
  test_processes_make_one_copy_and_a_killed_one_hinders_nobody
storage: the least recently used are removed, but never one that a task is reading
  test_what_was_not_used_for_longest_goes_first test_what_is_read_stays test_a_full_disk_while_fetching
storage: atomically only if it does not exist
  test_a_store_that_cannot_claim_is_refused
storage: It never sees an incomplete version
  test_the_record_comes_last_and_the_manifest_before_it test_pushers_at_once_get_different_whole_versions
storage: A cached push is verified in the same way
  test_a_run_pushes_once_and_looks_again_before_it_believes_the_cache
storage: The files of a killed pusher are removed by the next one
  test_a_killed_push_is_no_version_and_the_next_one_removes_it test_a_push_of_another_machine_counts_as_dead_after_a_day
storage: they are counted, never removed
  test_versions_of_others_are_counted_and_left_alone test_keep_removes_the_oldest
storage: its bytes are compared with their digest
  test_a_payload_is_compared_before_it_is_read_unless_none_of_its_files_was_written
storage: A component that changes an input fails by name
  test_a_component_that_changes_its_input_fails_by_name_and_poisons_nothing
storage: It does not touch files that a running execution writes or continues
  test_an_upload_that_is_gone_on_with_meanwhile_stays test_what_a_living_process_is_doing_is_left_alone
storage: Files that change while fsck reads are left to the next time
  test_what_is_changed_meanwhile_is_left_to_the_next_time
storage: If the URL holds nothing at all, nothing is repaired
  test_a_share_that_is_not_mounted_is_not_taken_for_an_empty_one
storage: and what was made from these by nodes that did not compare them
  test_all_that_was_made_from_a_changed_payload_is_retired_and_comes_back_when_it_is_whole
storage: says to which store a folder belongs
  test_the_payloads_of_another_store_are_not_repaired test_fsck_names_a_damaged_marker_and_the_fix
  test_payloads_that_are_merely_elsewhere_are_not_taken_for_lost
storage: each leaves the artifacts of the others alone
  test_what_lies_in_another_hosts_root_is_not_taken_for_lost
storage: or one on a disk that is read-only or full, can be looked at
  test_a_root_that_may_not_be_written_is_looked_at test_a_store_in_a_folder_that_may_not_be_written_is_read
  test_on_a_full_disk_everything_can_be_read_and_backed_up test_a_read_only_root_is_named_with_the_way_out
storage: readers take what its file and its log hold into memory
  test_an_image_is_what_sqlite_reads test_a_log_that_is_cut_or_damaged_counts_as_far_as_for_sqlite
storage: none of them makes one beside artifacts whose store was lost
  test_no_verb_but_run_makes_a_store test_a_run_does_not_begin_anew_over_artifacts
storage: In memory file systems (tmpfs, such as `/dev/shm`) the bytes are compared each time
  test_what_is_written_through_a_mapping_in_memory_is_seen
storage: `--repair` beside each finding what it did
  test_a_repair_says_what_it_did_and_how_to_undo_it
storage: A payload that fsck finds changed is read again at its next use
  test_what_a_check_finds_changed_is_not_known_as_whole_any_more
storage: names the runs of which only logs are left
  test_a_rebuild_says_what_is_lost
storage: a push from a root that was moved says where it goes now
  test_a_root_that_was_moved_says_where_it_pushes_to_now
storage: Every verb that meets what nobody writes there says that the database is damaged
  test_every_verb_names_damage test_a_value_that_nobody_writes_is_damage test_a_damaged_database_is_not_repaired
storage: is begun at most three times more than its retries allow
  test_a_task_is_not_begun_for_ever
storage: copies the database as it is at one moment, while runs go on
  test_a_backup_is_one_state_while_others_write test_a_copy_is_durable_before_it_has_its_name
storage: it replaces no file
  test_a_backup_replaces_no_file
storage: checks a copy and puts it in place; what was there is kept beside it
  test_a_copy_is_written_into_the_root_or_a_folder_and_put_back
  test_a_damaged_database_gives_no_backup_and_a_damaged_backup_no_database
storage: makes a lost or damaged database of these
  test_a_lost_database_is_made_anew test_a_record_that_is_torn_is_named_and_the_rest_taken
storage: runs that found everything in the cache (they write no record)
  test_a_run_that_reuses_all_writes_no_record
storage: a new store refuses a prefix that already holds artifacts
  test_two_stores_do_not_share_a_prefix
storage: takes *n* + 1 writes and at most eight small requests
  test_what_a_payload_costs_is_what_the_page_says
storage: `memory://` works within one process
  test_the_memory_of_a_process_is_its_own test_the_memory_of_another_process_is_refused
storage: No message, suggested command or command line shows it
  test_no_message_holds_a_password test_no_command_line_holds_the_password test_no_advised_command_holds_the_password
storage: so a killed process releases it at once
  test_what_a_killed_writer_held_is_free_at_once test_a_writer_waits_for_another_and_readers_do_not
storage: A transaction that a lost machine left open ends after 45 s
  test_a_transaction_that_a_lost_machine_left_open_ends
storage: All times are the server's
  test_the_clock_is_the_servers
storage: A process is looked up by its id only on the kernel that started it
  test_another_machine_of_the_same_name_is_not_this_one_before_its_boot
  test_a_run_of_another_machine_of_this_name_is_judged_by_its_lease
storage: an acknowledged write survives a kill of the server
  test_acknowledged_writes_survive_kills_of_the_server
storage: this is noticed after 30 s
  test_a_machine_that_vanishes_is_noticed test_limits_of_a_role_do_not_end_who_waits
storage: Later the store waits up to 60 s for a server that restarts or fails over
  test_a_server_that_is_killed_loses_nothing_and_is_found_again test_a_run_waits_for_a_server_that_is_away
storage: so nothing is stored twice
  test_what_loses_its_connection_is_stored_once test_what_loses_its_connection_amid_it_is_done_again
storage: What was acknowledged is then on both
  test_a_failover_loses_nothing_that_was_acknowledged
namespaces: can do what that user's roles allow, with drivetrain or with `psql`, and nothing else
  test_a_role_may_do_by_sql_what_it_needs_and_no_more test_each_operation_works_with_the_role_it_needs
namespaces: A call beyond a role is one error, and nothing is changed
  test_a_call_beyond_the_role_is_one_clear_error
namespaces: is granted again whenever the schema changes
  test_who_may_make_roles_makes_a_namespace_and_an_admin_upgrades_it test_a_table_that_is_made_later_is_not_forgotten
namespaces: can be added at its end, never changed or removed
  test_a_table_of_the_same_name_does_not_deceive_the_journal
namespaces: An execution that ended stays as it is
  test_what_ended_is_not_changed_and_the_dead_are_ended
namespaces: What is revoked is gone at once
  test_a_role_is_given_and_taken
bundles: Numbers are cast where no value changes
  test_a_cast_changes_no_value test_what_would_change_is_one_error_that_names_the_column
bundles: The **order** of columns does not matter
  test_order_and_other_columns_do_not_matter
bundles: A column must be present, unless it has a **default**
  test_a_column_without_a_default_is_required test_a_column_with_a_default_may_be_absent
bundles: a null that is *given* stays a null
  test_a_given_null_is_not_replaced_by_the_default
bundles: a convention that this JAX no longer writes raises a `FutureWarning`; one that it no longer reads is refused
  test_an_aging_bundle_warns_and_refreshed_gives_the_same_bits
  test_a_bundle_beyond_the_window_is_refused_with_the_command
bundles: writes nothing unless the results are equal to the bit
  test_other_results_are_never_written
bundles: refuses a folder that other users may write to
  test_a_folder_that_others_can_write_to_is_refused
bundles: with `/`, without `.` and `..`
  test_paths_that_lead_elsewhere_are_refused test_names_that_are_no_files_are_refused
bundles: Other files in the folder are ignored
  test_other_files_in_the_folder_are_ignored test_files_are_not_read_beyond_what_the_manifest_says
bundles: a word's id is its row
  test_the_id_of_a_word_is_its_row
bundles: The main function of an `.mlirbc` takes the arguments
  test_a_portable_program_takes_platform_inputs_and_weights_as_the_graph_says
bundles: reads every bundle that a release from 0.1 on wrote
  test_a_releases_bundle_predicts_what_it_did test_there_is_a_bundle_to_load
bundles: An older reader refuses a newer version with an error that names it
  test_partial_and_newer_bundles_are_refused
bundles: Equal graphs and weights give equal bytes
  test_equal_inputs_give_equal_bytes_in_another_folder
bundles: neither holds a second copy of them
  test_a_bundle_is_saved_and_loaded_without_a_copy_of_its_weights
bundles: You may remove or replace the folder of a loaded bundle
  test_the_folder_of_a_loaded_bundle_may_be_removed
bundles: transfers are refused, and custom calls other than JAX's own numerical kernels
  test_a_program_that_calls_back_is_refused test_a_gradient_that_calls_back_is_refused
bundles: If it crashes, the error is a `BundleError`
  test_what_ends_the_child_is_an_error_that_names_the_program
  test_no_damaged_program_ends_the_process_that_loads_it
bundles: once per program, user and jaxlib
  test_a_program_is_tried_once_per_user test_what_this_user_saved_is_not_tried
bundles: in a folder that only this user may write to
  test_a_folder_that_others_can_write_to_is_not_believed test_without_a_folder_of_its_own_each_process_tries
bundles: or of a type by which few bytes stand for many, is refused
  test_few_bytes_that_stand_for_many_are_refused test_a_bundle_with_a_compressed_vocabulary_is_refused
bundles: as Bundle.run, also its errors
  test_odd_arguments_end_as_they_do_with_the_bundle test_odd_rows_end_as_they_do_with_the_bundle
bundles: A call ends in a result or an `InputError`
  test_a_program_that_means_harm_ends_in_an_error test_what_the_child_gives_is_not_believed
bundles: and with the process that started it, even if that is killed
  test_whatever_ends_the_process_that_asks_ends_its_child
bundles: always work this way
  test_verify_says_what_ended_or_did_not_end test_an_endless_program_is_not_refreshed
bundles: which changes no digest; copy the two together, as Pusher
  test_a_signature_changes_no_digest_and_is_verified test_what_is_pushed_keeps_its_signature
bundles: refuses a bundle that is not signed, is signed by another key, or was altered
  test_what_is_not_signed_by_that_key_is_refused test_a_bundle_altered_after_it_was_signed_is_refused
  test_a_signature_that_was_altered_is_refused
"""


def promises() -> list[tuple[str, str, list[str]]]:
    """(page, words, tests)."""
    parts = re.findall(r"^(\w+): (.*)\n((?:  .*\n)+)", PROMISES, re.M)
    return [(page, words, tests.split()) for page, words, tests in parts]


@cache
def text_of(page: str) -> str:
    return " ".join((ROOT / PAGES[page]).read_text("utf-8").split())


@cache
def names_of_tests() -> frozenset[str]:
    """The names of all test functions."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    return frozenset(name for text in texts for name in re.findall(r"^def (test_\w+)\(", text, re.M))


@pytest.mark.parametrize(("page", "words", "kept_by"), promises())
def test_a_promise_stands_and_is_kept_by_tests(page: str, words: str, kept_by: list[str]) -> None:
    assert words in text_of(page)
    assert set(kept_by) <= names_of_tests()


def test_every_point_of_the_security_policy_is_among_them() -> None:
    page = (ROOT / PAGES["SECURITY"]).read_text("utf-8").partition("\n## ")[0]
    points = [" ".join(point.split()) for point in re.findall(r"^- (.*?)(?=^- |^\n|\Z)", page, re.M | re.S)]
    assert len(points) == 14
    words = [words for which, words, _ in promises() if which == "SECURITY"]
    assert [point for point in points if not any(each in point for each in words)] == []


def imports(source: str) -> Iterator[str]:
    """The packages that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        yield from (name.partition(".")[0] for name in names)


def test_no_module_unpickles() -> None:
    forbidden = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    imported: dict[str, str] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text("utf-8")
            assert "allow_pickle=True" not in source, path
            if any(name in source for name in forbidden):  # else it imports none of them
                imported |= dict.fromkeys(imports(source), str(path))
    assert imported.keys() >= {"json", "pyarrow"}
    assert {name: path for name, path in imported.items() if name in forbidden} == {}
