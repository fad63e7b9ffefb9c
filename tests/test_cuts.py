"""Text that is shared or tracked is cut after it was redacted: every place that cuts text is known by name."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "flightlog"
# Everything between a recording and what may leave the machine.
ON_THE_WAY = ("model", "hooks", "archive", "sources", "agents", "usage", "views", "dataset", "retro", "loop",
              "live/service.py", "lab/links.py", "lab/service.py", "setup", "recorder", "tracing", "app",
              "store/git", "analysis/findings", "web/share.py", "web/templates.py")  # fmt: skip
# Names of limits that count characters; those of lists are called `…_MAX` without saying what of.
_LIMIT = re.compile(r"CHARS|WIDTH|BYTES|^(limit|width|most|keep|size)$")
# A day, a short id or the beginning of a hash is shorter than this.
_ID_CHARS = 12
_CUTTERS = frozenset({"one_line", "shorten", "truncate"})

# `shorten` takes redacted text, and can be used anywhere. `one_line` and slices stand only here.
AFTER_REDACTION = {
    "model/session.py heading": "asked of a session that is shown here or was redacted before",
    "model/text.py one_line": "the function itself",
    "loop/decide/fold.py _apply_verification": "words of events, which were redacted before they were written",
    "loop/decide/fold.py _add_note": "words of events",
    "loop/decide/recovery.py explain_error": "words of events",
    "loop/session_overview.py": "words of events and of the shown plan",
    "loop/runner/control.py send_event": "words of events, for a command of the person",
    "loop/decide/recovery.py classify_error": "words of a run, redacted by the machine",
    "loop/decide/recovery.py error_signature": "words of a run, redacted by the machine",
    "loop/report.py": "words of events and of the shown plan",
    "loop/retention.py _summary_row": "words of events",
    "loop/status.py": "words of events",
    "loop/directories.py create_session_dir": "the redacted name of a plan",
    "loop/runner/agent_task.py build_prompt": "words of events, for an agent",
    "retro/analysis/digests.py": "of failures, the redacted session; of the rest, words that stay private",
    "retro/actions.py": "a person's words, which were redacted whole, and commands of a private journal",
    "retro/recommendations.py": "words that the redactor went over",
    "retro/issues/triage.py": "words that the redactor went over",
    "retro/issues/workflow.py _word_similarity": "words that triage redacted, to compare them",
    **{
        f"analysis/findings/{name}.py": "titles, of a session that is shown here or was redacted before"
        for name in ("__init__", "failures", "reads")
    },
    "views/table_text.py lay_out_table": "a table on this terminal, or of redacted words",
    "model/text.py fit_cells": "the function itself",
    "views/transcript.py _truncate_line": "renders a session that is shown here or was redacted before",
    "views/atif/writer.py subagent_file": "as story",
    "web/templates.py": "renders pages of this machine, and redacted sessions",
}
STAYS_HERE = {
    "agents/process.py _collect_tail": "the end of an output, for an error message",
    "archive/search.py": "looks for a mark and for an id",
    "loop/decide/gates.py check_answer": "an error message about an answer",
    "loop/plan/importer.py import_plan": "the name of a task in a plan, beside its whole text",
    "loop/runner/work_tree.py _write_patch": "cuts at a line end, before the redactor",
    "loop/runner/work_tree.py commit_task_files": "the name of a shown task",
    "agents/capture/proxy.py _pump_response": "bytes for the client, which gets the rest after them",
    "agents/capture/recorder.py _find_ending": "looks for the last event of a response",
    "agents/claude_code/rebuild.py rebuild_all": "cuts a list of records at a position",
    "agents/claude_code/request_log.py": "cuts lists of messages at a position",
    "loop/service.py conduct_session": "a message on this terminal",
    "agents/claude_code/driver.py project_folder": "the name of a directory",
    "agents/scripted/wire.py split_text": "parts of a scripted reply",
    "store/git/worktree.py snapshot_message": "the name of a private snapshot",
    "agents/claude_code/stream.py read_outcome": "the error of a private run",
    "agents/claude_code/stream.py read_stream": "looks for signs; the words are passed on whole",
    "usage/prices.py _in_force": "the day and the hour of a time",
    "app/config.py _unknown_setting_error": "an error message about a setting",
    "tracing/providers.py": "search results on this machine",
    "hooks/statusline_segments.py": "the status line",
    "hooks/payload_log.py _find_string": "finds an id",
    "hooks/payload_log.py _is_declined": "compares the end of a key with those that were declined",
    "hooks/recorder.py": "finds the names of an event",
    "app/jobs/executors.py carry_out": "an error message",
    "app/jobs/executors.py connect_cluster": "the address that the person typed",
    "lab/service.py run_name": "the name of a model",
    "live/service.py label_profile": "a label that the person gives",
    "retro/store.py name_output": "a time",
    "retro/analysis/similarity.py": "stems of words, to compare them",
    "tracing/blame.py _sessions_mentioning": "a hash",
    "tracing/trace.py": "links shown on this machine",
    "dataset/extract/commits.py": "ids of rows, and commits looked for in an output",
    "dataset/compact.py _compact_into_shard": "finds the number of a shard",
    "dataset/compact.py purge_shards": "finds the number and the day of a shard",
    "dataset/layout.py cache_pages": "names of private files",
    "dataset/extract/sync.py _normalize_time": "a time",
    "dataset/remote.py pull_rows": "finds the number of a shard",
    "dataset/reader.py name_shard": "the redacted id of a session, as part of a file's name",
    "loop/plan/load.py _find_problems": "an error message about the person's own plan",
    "retro/layout.py": "private pages",
    "retro/analyst.py decode_reply": "names that an analyst gives, which stay private",
    "retro/layout.py feedback_page": "a time",
    "agents/capture/recorder.py _run_or_record_loss": "errors of a private recording",
    "agents/dialects/anthropic_messages.py classify_request": "tells one kind of request from another",
    "agents/claude_code/scan.py": "looks for usage in bytes",
    "store/git/repository.py parse_batch": "takes git's answer apart",
    "views/atif/lint.py": "what is wrong with a document, for the person who asked",
    "views/atif/rules.py": "as above",
    "views/session/rows.py _add_turn": "the outline, which only pages of this machine show",
    "views/session/thread.py": "the outline",
    "views/session/edits.py commits_of_call": "looks for hashes",
    "views/overview.py": "the first screen",
    "archive/search.py cut_snippet": "search results on this machine",
}


def limits(node):
    """Whether an expression bounds a text."""
    match node:
        case ast.UnaryOp():
            return limits(node.operand)
        case ast.BinOp():
            return limits(node.left) or limits(node.right)
        case ast.Call():
            return any(map(limits, node.args))
        case ast.Constant():
            return isinstance(node.value, int) and node.value > _ID_CHARS
        case ast.Name() | ast.Attribute():
            return _LIMIT.search(node.id if isinstance(node, ast.Name) else node.attr) is not None
        case _:
            return False


def is_cut(node):
    """Whether a node cuts text: a call of a cutter, or a slice with a limit that is not of a hash."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in _CUTTERS - {"shorten"}
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
        return False
    upper, lower = node.slice.upper, node.slice.lower
    is_tail = isinstance(lower, ast.UnaryOp) and limits(lower)
    is_head = upper is not None and not isinstance(upper, ast.UnaryOp) and limits(upper)
    return (is_tail or is_head) and "digest()" not in ast.unparse(node.value)


def cuts(path):
    """Yield the function around each place that cuts; what an error quotes of the person's own words is none."""

    def walk(node, function):
        function = (
            node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        )
        if is_cut(node):
            yield function
        for child in () if isinstance(node, ast.Raise) else ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(ast.parse(path.read_text()), "")


def find_cuts():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(ON_THE_WAY):
            yield from ((name, function) for function in cuts(path))


def test_text_is_cut_only_where_it_was_redacted_before_or_stays_here():
    known = {*AFTER_REDACTION, *STAYS_HERE}
    places = set(find_cuts())

    new = sorted(
        f"{name} {function}"
        for name, function in places
        if not {name, f"{name} {function}"} & known
    )
    assert new == [], "cut redacted text with `model.text.shorten`"
    assert known == {
        reason
        for name, function in places
        for reason in (name, f"{name} {function}")
        if reason in known
    }


def test_the_walk_sees_every_way_to_cut(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f(text):\n    return text[:80], text[-MOST_CHARS:], text[: width - 1], one_line(text, 9)\n"
                    "def g(text):\n    return text[:8], text[1:], text.hexdigest()[:16], FILES[:FILES_MAX]\n"
                    "def h(text):\n    raise Invalid(f'no {text[:60]}')\n")  # fmt: skip

    assert list(cuts(path)) == ["f"] * 4
