"""One plausible mistake for each test a promise names: which text of which file, and what stands there instead.

Every day things still work with most of these: that is what the tests are for. A break is one replacement of a
text that occurs once; `tests/test_promises.py` sees to it that it still does, and that no test is left out.
"""

from typing import NamedTuple


class Break(NamedTuple):
    """A promise broken on purpose; `test` is the one that must notice."""

    promise: str
    file: str
    old: str
    new: str
    test: str


BREAKS = (
    Break(
        "R1",
        "store/jsonl.py",
        "        written = os.write(file, data)\n",
        "        kept = os.pread(file, size, 0)\n"
        "        os.ftruncate(file, 0)\n"
        "        written = os.write(file, kept + data) - size\n",
        "tests/store/test_jsonl.py::test_forty_killed_writers_lose_nothing_and_hurt_no_neighbour",
    ),
    Break(
        "R1",
        "hooks/writer.py",
        '    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\\n"\n',
        "    is_torn = False\n",
        "tests/hooks/test_record.py::test_a_line_torn_by_a_crash_is_sealed_off",
    ),
    Break(
        "R1",
        "store/jsonl.py",
        '    is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\\n"\n',
        "    is_torn = False\n",
        "tests/store/test_jsonl.py::test_a_crash_costs_at_most_the_last_record",
    ),
    Break(
        "R2",
        "store/jsonl.py",
        "        if durable:\n            sync_data(file)\n",
        "",
        "tests/store/test_power_cut.py::test_what_was_acknowledged_as_durable_survives_a_power_cut",
    ),
    Break(
        "R2",
        "hooks/writer.py",
        '        if durable:\n            getattr(os, "fdatasync", os.fsync)(file)\n',
        "",
        "tests/store/test_power_cut.py::test_what_was_acknowledged_as_durable_survives_a_power_cut",
    ),
    Break(
        "R2",
        "hooks/recorder.py",
        "durable=event in SETTLE,",
        'durable=event == "Stop",',
        "tests/store/test_power_cut.py::test_what_was_acknowledged_as_durable_survives_a_power_cut",
    ),
    Break(
        "R2",
        "store/files.py",
        "    if durable:\n        os.fsync(file)\n    temp.rename(path)\n",
        "    temp.rename(path)\n",
        "tests/store/test_power_cut.py::test_what_was_acknowledged_as_durable_survives_a_power_cut",
    ),
    Break(
        "R3",
        "store/jsonl.py",
        "        written = os.write(file, data)\n",
        "        kept = os.pread(file, size, 0)\n"
        "        os.ftruncate(file, 0)\n"
        "        written = os.write(file, kept + data) - size\n",
        "tests/store/test_jsonl.py::test_dying_at_any_system_call_of_an_append_loses_nothing_acknowledged",
    ),
    Break(
        "R3",
        "store/files.py",
        "    temp.rename(path)\n    if durable:\n",
        "    path.write_bytes(temp.read_bytes())\n    if durable:\n",
        "tests/store/test_files.py::test_a_kill_during_a_replacement_leaves_the_old_or_the_new_file",
    ),
    Break(
        "R3",
        "usage/index.py",
        '        run(\n            "INSERT OR REPLACE INTO chunks',
        '        database.execute("COMMIT")\n'
        '        database.execute("BEGIN IMMEDIATE")\n'
        '        run(\n            "INSERT OR REPLACE INTO chunks',
        "tests/usage/test_pipeline.py::test_dying_at_any_system_call_of_an_update_leaves_an_index_that_heals",
    ),
    Break(
        "R3",
        "dataset/compact.py",
        "    write_output_files(dirs.tracked_dir, pages)\n"
        "    files.remove_files(path for path in shards if path not in damaged)\n",
        "    files.remove_files(path for path in shards if path not in damaged)\n"
        "    write_output_files(dirs.tracked_dir, pages)\n",
        "tests/dataset/test_compact.py::test_killed_at_any_point_a_compaction_loses_no_row",
    ),
    Break(
        "R3",
        "store/directories.py",
        "    if not (copy / _WHOLE).exists():\n",
        "    if layout_of(root) < step.to:\n",
        "tests/store/test_migration.py::test_killed_at_any_point_a_migration_is_taken_up_and_the_copy_is_whole",
    ),
    Break(
        "R4",
        "hooks/recorder.py",
        "        writer.count_lost(home)\n        _cancel_alarm()\n",
        "        _cancel_alarm()\n",
        "tests/hooks/test_record.py::test_disk_error_loses_the_record_and_is_reported",
    ),
    Break(
        "R4",
        "hooks/writer.py",
        "        if written < len(whole):\n",
        "        if not written:\n",
        "tests/hooks/test_record.py::test_a_full_disk_keeps_what_was_written_and_counts_the_rest",
    ),
    Break(
        "R4",
        "hooks/writer.py",
        "_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)\n",
        "_NO_LOCKS = ()\n",
        "tests/hooks/test_record.py::test_where_locks_do_not_work_each_hook_has_a_file_of_its_own",
    ),
    Break(
        "R4",
        "cli/overview.py",
        "    if summary.lost_hook_events:\n",
        "    if summary.lost_events and summary.not_kept:\n",
        "tests/hooks/test_record.py::test_status_reports_the_events_that_were_lost",
    ),
    Break(
        "R5",
        "setup/install.py",
        ">/dev/null 2>&1 || :",
        ">/dev/null 2>&1",
        "tests/hooks/test_recorder.py::test_a_broken_installation_is_not_noticed_by_the_agent",
    ),
    Break(
        "R5",
        "hooks/recorder.py",
        "HARD_STOP_S = 1.0\n",
        "HARD_STOP_S = 20.0\n",
        "tests/hooks/test_recorder.py::test_stdin_that_never_ends_costs_the_agent_a_second",
    ),
    Break(
        "R5",
        "hooks/writer.py",
        "_FLAGS = os.O_RDWR | os.O_APPEND |",
        "_FLAGS = os.O_RDWR |",
        "tests/hooks/test_crowd.py::test_sixteen_agents_at_once_lose_nothing_and_notice_nothing",
    ),
    Break(
        "R6",
        "dataset/reader.py",
        "{safe}-{hashlib.sha256(body).hexdigest()[:12]}.jsonl",
        "{safe}-{hashlib.sha256(safe.encode()).hexdigest()[:12]}.jsonl",
        "tests/dataset/test_histories.py::test_a_short_history_loses_nothing",
    ),
    Break(
        "R6",
        "dataset/reader.py",
        "            if version <= known:\n                return\n",
        "            if same:\n                return\n",
        "tests/dataset/test_histories.py::test_a_short_history_loses_nothing",
    ),
    Break(
        "R6",
        "dataset/reader.py",
        '        if row.get("kind") == "tombstone":\n',
        '        if row.get("kind") == "tombstone" and row.get("of") in self.rows:\n',
        "tests/dataset/test_histories.py::test_a_short_history_loses_nothing",
    ),
    Break(
        "R6",
        "dataset/compact.py",
        "        dataset.add_line(version.line)\n",
        "        del version\n",
        "tests/dataset/test_histories.py::test_a_short_history_loses_nothing",
    ),
    Break(
        "R7",
        "store/jsonl.py",
        "    for span in salvage.iter_spans(line):\n",
        '    for span in [salvage.Span(0, len(line), "torn")]:\n',
        "tests/store/test_jsonl.py::test_what_broke_in_the_field_is_read_around",
    ),
    Break(
        "R7",
        "store/jsonl.py",
        "READ_BYTES_MAX = 256 << 20\n",
        "READ_BYTES_MAX = 1 << 20\n",
        "tests/store/test_jsonl.py::test_every_record_that_damage_did_not_touch_is_returned",
    ),
    Break(
        "R7",
        "store/jsonl.py",
        "_CHUNK_BYTES = 1 << 20\n",
        "_CHUNK_BYTES = 1 << 30\n",
        "tests/store/test_jsonl.py::test_a_line_of_200_megabytes_needs_little_more_memory_than_itself",
    ),
    Break(
        "R8",
        "setup/doctor.py",
        'f"damaged index moved to {quarantine_file(part)}" for part in parts if part.exists()\n',
        'f"{part}" for part in parts if part.exists() and not part.unlink()\n',
        "tests/cli/test_doctor.py::test_second_fix_changes_nothing_and_no_byte_is_lost",
    ),
    Break(
        "R8",
        "store/files.py",
        "os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)",
        "os.open(aside, os.O_CREAT | os.O_WRONLY, 0o600)",
        "tests/cli/test_doctor.py::test_second_fix_changes_nothing_and_no_byte_is_lost",
    ),
    Break(
        "R8",
        "setup/doctor.py",
        "        if is_sound(index):\n",
        "        if not index.exists():\n",
        "tests/cli/test_doctor.py::test_second_fix_changes_nothing_and_no_byte_is_lost",
    ),
    Break(
        "R9",
        "live/state_file/runtime_state.py",
        "chunk = yaml_edit.apply_values(chunk, new_values, comments)",
        "chunk = yaml_edit.new_item(chunk.key, new_values, 2, comments)",
        "tests/live/state_file/test_runtime_state.py::test_edits_stay_in_place_through_a_thousand_updates",
    ),
    Break(
        "R9",
        "live/state_file/runtime_state.py",
        "shared_files.replace_if_unchanged(\n                folder / NAME, data, text,",
        "shared_files.replace_if_unchanged(\n"
        "                folder / NAME, shared_files.read_if_exists(folder / NAME), text,",
        "tests/live/state_file/test_runtime_state.py::test_a_save_between_our_read_and_our_write_is_never_lost",
    ),
    Break(
        "R9",
        "store/shared_files.py",
        "        if temp.read_bytes() != before:\n",
        "        if temp.stat().st_size != len(before):\n",
        "tests/live/state_file/test_runtime_state.py::"
        "test_save_between_last_read_and_exchange_is_restored_and_read_again",
    ),
    Break(
        "R9",
        "live/state_file/runtime_state.py",
        "    files.replace_file(folder / NAME, late)\n    return late\n",
        "    return data\n",
        "tests/live/state_file/test_runtime_state.py::"
        "test_save_into_the_replaced_file_is_restored_by_the_next_update",
    ),
    Break(
        "R10",
        "store/index/files.py",
        "            pending.append(PendingRead(file, row.id, row.offset))\n",
        "            pending.append(PendingRead(file, row.id, row.size))\n",
        "tests/usage/test_pipeline.py::test_neither_order_nor_cuts_nor_the_index_change_a_report",
    ),
    Break(
        "R10",
        "store/index/files.py",
        "    return SyncPlan(pending, list(removed.values()), current)\n",
        "    return SyncPlan(pending, [], current)\n",
        "tests/archive/test_finder.py::test_an_index_brought_up_to_date_finds_what_a_new_one_finds",
    ),
    Break(
        "R10",
        "store/index/files.py",
        "    state = (row.size, row.changed_ns, row.inode, row.device)\n",
        "    state = (row.size, file.changed_ns, row.inode, row.device)\n",
        "tests/usage/test_pipeline.py::test_a_file_rewritten_in_place_is_read_again",
    ),
    Break(
        "R11",
        "loop/decide/fold.py",
        "            state.epoch = event.epoch\n",
        '            state.epoch, state.current_task = event.epoch, ""\n',
        "tests/loop/test_every_syscall.py::test_plan_killed_at_some_calls_comes_to_the_same_end",
    ),
    Break(
        "R11",
        "loop/runner/session.py",
        "allowed=lease.check_owner",
        "allowed=lambda: None",
        "tests/loop/test_interrupted.py::test_a_second_runner_is_refused_and_a_zombie_is_fenced",
    ),
    Break(
        "R11",
        "store/journal.py",
        "            self._allowed()\n",
        "",
        "tests/loop/test_interrupted.py::test_a_second_runner_is_refused_and_a_zombie_is_fenced",
    ),
    Break(
        "R12",
        "loop/decide/breaker.py",
        "None if begun else state.config.max_iterations\n",
        "None if begun else state.config.max_iterations + 1\n",
        "tests/loop/simulator/test_simulate.py::test_no_promise_is_broken_in_hundreds_of_sessions",
    ),
    Break(
        "R12",
        "loop/simulator/simulation.py",
        "random.Random(seed)",
        "random.Random()",
        "tests/loop/simulator/test_simulate.py::test_same_seed_simulates_the_same_session",
    ),
    Break(
        "R12",
        "loop/decide/fold.py",
        'task.stage, task.retry_at = "idle", at + event.wait_s\n',
        'task.stage, task.retry_at = "idle", at\n',
        "tests/loop/simulator/test_simulate.py::test_no_promise_is_broken_in_hundreds_of_sessions",
    ),
    Break(
        "R13",
        "loop/decide/breaker.py",
        "totals.calls, limits.calls, ",
        "totals.calls - 3, limits.calls, ",
        "tests/loop/test_with_real_agent.py::test_an_agent_that_never_finishes_is_stopped_by_its_budget",
    ),
    Break(
        "R13",
        "loop/decide/breaker.py",
        "totals.cost_usd, limits.usd, ",
        "totals.cost_usd - 3, limits.usd, ",
        "tests/loop/test_with_real_agent.py::test_an_agent_that_never_finishes_is_stopped_by_its_budget",
    ),
    Break(
        "R13",
        "loop/decide/breaker.py",
        "totals.total_tokens, limits.tokens, ",
        "totals.total_tokens / 2, limits.tokens, ",
        "tests/loop/test_with_real_agent.py::test_an_agent_that_never_finishes_is_stopped_by_its_budget",
    ),
    Break(
        "R14",
        "loop/runner/guardian.py",
        "        pids = processes_with_marker(mark)\n",
        "        pids: list[int] = []\n",
        "tests/loop/test_interrupted.py::test_stopping_leaves_no_orphan_and_no_lock",
    ),
    Break(
        "R14",
        "cli/overview.py",
        "    _print_failures(report)\n    return 1 if",
        "    _print_failures(report)\n    __import__('time').sleep(60)\n    return 1 if",
        "tests/hooks/test_gate.py::test_no_process_outlives_its_work",
    ),
    Break(
        "R14",
        "hooks/settle_gate.py",
        "    _signal.setitimer(_signal.ITIMER_REAL, LIMIT_S)\n",
        "",
        "tests/hooks/test_gate.py::test_settle_that_hangs_is_killed_and_the_next_one_runs",
    ),
    Break(
        "R15",
        "agents/capture/proxy.py",
        "auto_decompress=False",
        "auto_decompress=True",
        "tests/agents/capture/test_proxy.py::"
        "test_r15_the_client_gets_unchanged_bytes_and_the_copy_is_decompressed",
    ),
    Break(
        "R15",
        "agents/capture/recorder.py",
        "[:300])\n            return None\n",
        "[:300])\n            raise\n",
        "tests/agents/capture/test_proxy.py::test_r15_call_continues_when_nothing_can_be_recorded",
    ),
    Break(
        "R15",
        "agents/capture/proxy.py",
        "        if not is_cut:\n            await response.write_eof()\n",
        "        if is_cut in (False, True):\n            await response.write_eof()\n",
        "tests/agents/capture/test_proxy.py::test_r15_a_broken_answer_is_broken_for_the_client_too",
    ),
    Break(
        "R16",
        "store/journal.py",
        "        for item in read_together(self.path):\n",
        "        for item in sorted(read_together(self.path), key=lambda one: str(one).partition('ts')[2]):\n",
        "tests/store/test_journal.py::test_a_clock_that_jumps_reorders_loses_and_doubles_nothing",
    ),
    Break(
        "R16",
        "views/session/turns.py",
        "            waiting[parent].append(index)\n",
        "            ready.append(index)\n",
        "tests/views/session/test_turns.py::test_a_record_follows_its_parent_whatever_their_times",
    ),
    Break(
        "R16",
        "store/journal.py",
        "                if entry.id in seen:\n                    continue\n                seen.add(entry.id)\n",
        "                if entry.ts in seen:\n                    continue\n                seen.add(entry.ts)\n",
        "tests/store/test_journal.py::test_a_clock_that_jumps_reorders_loses_and_doubles_nothing",
    ),
    Break(
        "R17",
        "store/journal.py",
        "VERSION = 1\n",
        "VERSION = 2\n",
        "tests/test_layouts.py::test_what_a_released_version_wrote_opens_and_says_the_same",
    ),
    Break(
        "R17",
        "lab/events.py",
        'tag="session_started"',
        'tag="session_begun"',
        "tests/test_layouts.py::test_what_a_released_version_wrote_opens_and_says_the_same",
    ),
    Break(
        "R17",
        "dataset/rows.py",
        '    "chat": "chats.jsonl",\n',
        '    "chat": "conversations.jsonl",\n',
        "tests/test_layouts.py::test_rows_that_a_released_version_compacted_are_all_read",
    ),
    Break(
        "R18",
        "store/journal.py",
        "            if header.v != VERSION or name not in self._known:\n",
        "            if header.v != VERSION:\n",
        "tests/test_layouts.py::test_two_versions_side_by_side_lose_nothing_of_each_other",
    ),
    Break(
        "R18",
        "dataset/compact.py",
        "    names = [*BASES.values(), *([OTHER] if OTHER in lines else [])]\n",
        "    names = [*BASES.values()]\n",
        "tests/test_layouts.py::test_what_a_later_version_added_is_kept_as_it_is",
    ),
    Break(
        "R18",
        "retro/state.py",
        "    if version > VERSION:\n",
        "    if version > VERSION + 1:\n",
        "tests/test_layouts.py::test_a_file_of_a_later_schema_is_refused_and_stays_where_it_is",
    ),
)
