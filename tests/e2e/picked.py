"""Which of the collected tests a run picks, and in which order. A test that does not depend on where bytes lie runs on
the first backend alone. GB_E2E_SET=check leaves out the files of REST, tests that are marked "rest", and all other
backends; GB_E2E_SET=rest runs those; GB_E2E_SET=quick runs those of QUICK. Without it all run. GB_E2E_ONLY names a file
with the only ones."""
import os

import pytest

from harness import BACKENDS

SET = os.environ.get("GB_E2E_SET", "all")

# The files whose tests depend on where bytes lie and how they get there.
OF_MEMORY = {"test_" + name for name in """
    adopt adopt_gpu batch big broken cli_data cli_map cli_models cli_model_use copy devices durable_oracle encodings export fault
    hold host_tier integrity kinds links machine mirror order order_programs pool_edge poolless pools pools_current
    pull python_cuda python_gpu python_map python_models python_shared python_tensors python_tensors_gpu ranges repeat
    resumable room safetensors selftest share share_gpu share_pool slice_faults slice_writes slices sources
    sources_file sources_lies statements streams tables
    tensors tensors_back transfer upload_digest uploads""".split()}

# The files that show no route, command, option or error that no other file shows, and take long: kills and cuts at
# random, crowds of clients, what other programs make of the interface.
REST = {"test_" + name for name in """
    access_log adopt_kill backup_recipes bounds broken documents durable_faults durable_files durable_kill
    durable_load durable_power durable_writes fleet_checker fleet_clocks fleet_cuts fleet_hub_quorum fleet_move_keys
    fleet_move_requests fleet_nodes fleet_pull_replica fleet_quorum fleet_restore fleet_stop fleet_targets
    fleet_ways fsck generated_client hostile limits order_programs page_actions page_address page_durable page_fleet
    page_live page_look page_pictures page_rates proxies proxy_files pull python_package python_producers
    python_shared remedies repeat reuse room schema scopes share_gpu share_kill smuggling soak sources_lies stop
    suites tls_crowd tls_files tls_suites tokens tokens_file triton unknown_length unread""".split()}

# What make quick runs: one test for each large part, none of which takes long.
QUICK = {tuple(name.split("/")) for name in """
    every/test_refused_for_its_body every/test_preconditions transfer/test_partial_writes
    transfer/test_npy_of_every_version uploads/test_three_parts resumable/test_chunked_appends
    ranges/test_conditions_of_a_get slices/test_random_slices copy/test_parts batch/test_all_or_none
    streams/test_life_of_a_stream pools/test_counts_bytes_and_peaks
    sessions/test_no_session_sees_bytes_of_another mirror/test_sync_copies_only_when_stale
    integrity/test_verify_fills_in_what_was_not_known safetensors/test_every_type
    durable_restart/test_forms persist/test_lost_bytes_are_told_and_healed
    checkpoints/test_there_and_back_over_a_kill share/test_another_process_sees_the_bytes
    export/test_what_is_asked operations/test_many_at_once feed/test_resume_across_a_restart
    stats/test_statistics_survive_a_restart metrics/test_the_text_format history/test_levels_agree
    audit/test_who_changed_what cli_data/test_tensors_of_a_file_and_back
    cli_checkpoints/test_buffers_come_back python/test_many_in_one_request tls/test_curl
    tokens_prefix/test_batches start/test_help_and_version stop/test_running_transfers_finish
    fleet_api/test_bytes_through_another_node fleet_move/test_what_changes_on_the_way""".split()}

# Begun first: the files that take longest, in this order.
LONG = ["test_schema", "test_tls_suites", "test_broken", "test_tokens", "test_page_rates", "test_repeat",
        "test_tls_crowd", "test_unread", "test_bounds", "test_streams", "test_history", "test_feed", "test_operations",
        "test_tokens_file", "test_page_live", "test_fleet_owner", "test_fleet_checker", "test_fleet_cuts",
        "test_fleet_restore", "test_cli_fleet", "test_fleet_ways", "test_fleet_stop", "test_fleet_nodes",
        "test_idempotency", "test_soak", "test_audit", "test_answers", "test_selftest", "test_reuse", "test_stop",
        "test_health", "test_page", "test_cli_terminal", "test_examples", "test_tls", "test_remedies", "test_share_gpu",
        "test_adopt_kill", "test_share_kill"]


def backends():
    """Those that a run may pick tests of. Each worker collects all tests, which takes as long as many of them do."""
    return BACKENDS[:1] if SET in ("check", "quick") else BACKENDS


def pytest_ignore_collect(collection_path):
    """Reading all files takes longer than the few tests of make quick."""
    name = collection_path.stem.removeprefix("test_")
    return SET == "quick" and collection_path.match("test_*.py") and name not in {file for file, _ in QUICK} or None


def pytest_configure(config):
    config.addinivalue_line("markers", "big: needs gigabytes; runs with GB_E2E_BIG=1")
    config.addinivalue_line("markers", "once: no other on another backend")
    config.addinivalue_line("markers", "rest: shows no route, command, option or error that no other test shows; check "
                            "leaves it to check --all")


def _on_another_backend(item):
    backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")
    return backend is not None and backend != BACKENDS[0]


def _is_picked(item, only):
    if only is not None and item.nodeid not in only:
        return False
    # What no test produces can be said after a whole run, from its records.
    if item.path.stem == "test_zz_interface":
        return bool(os.environ.get("GB_E2E_RECORDS")) and (SET in ("all", "check")
                                                           or item.name == "test_all_that_was_produced_is_declared")
    another = _on_another_backend(item)
    if another and ("once" in item.keywords or item.path.stem not in OF_MEMORY):
        return False
    if SET == "quick":
        return (item.path.stem.removeprefix("test_"), item.originalname) in QUICK and not another
    return SET == "all" or (another or item.path.stem in REST or "rest" in item.keywords) == (SET == "rest")


def pytest_collection_modifyitems(config, items):
    only = None
    if os.environ.get("GB_E2E_ONLY"):
        with open(os.environ["GB_E2E_ONLY"], encoding="utf-8") as f:
            only = set(f.read().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if not _is_picked(item, only)])
    items[:] = [item for item in items if _is_picked(item, only)]
    items.sort(key=lambda i: LONG.index(i.path.stem) if i.path.stem in LONG else len(LONG))
    for item in items:
        if "big" in item.keywords and not os.environ.get("GB_E2E_BIG"):
            item.add_marker(pytest.mark.skip(reason="needs gigabytes: GB_E2E_BIG=1"))
