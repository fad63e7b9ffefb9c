"""What is known of the threads of a session, by its own files and by those of its neighbours.

A fork or a resumed copy repeats responses of another session of the same project. Which of
the sessions said them first is the ledger's rule, the same one that usage is counted by.
"""

import os
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.model.known import ThreadContext
from flightlog.model.usage import row_to_response
from flightlog.sources.claude_code.discover import AGENT
from flightlog.sources.claude_code.grep import find_lines
from flightlog.sources.protocol import SessionFile
from flightlog.usage.attribution import attribute_responses


def session_contexts(files: Sequence[SessionFile], others: Iterable[SessionFile]) -> dict[str, ThreadContext]:
    """Say what is known of each thread of the session in `files`; `others` are the files of other sessions."""
    told = source_of(AGENT).thread_contexts(files)
    main = next((file for file in files if not file.lane), None)
    if main is not None:
        main_thread = told.get("", ThreadContext())
        told[""] = replace(main_thread, copied=main_thread.copied | _copied_responses(main, others))
    return told


def _copied_responses(main: SessionFile, others: Iterable[SessionFile]) -> frozenset[str]:
    """Name the responses in `main` that an older session of the project holds; the first one tells where to look."""
    scan_usage = source_of(AGENT).scan_usage
    mine = scan_usage(main)
    first = min(mine.rows, key=lambda row: row.at_ms, default=None)
    if first is None:
        return frozenset()
    folder = os.path.dirname(main.path)  # noqa: PTH120 - as text, like everywhere here
    near = [file for file in others if not file.lane and os.path.dirname(file.path) == folder]  # noqa: PTH120
    assert all(file.session != main.session for file in near)
    holders = [file for file in near if any(True for _ in find_lines(file.path, first.message_id))]
    if not holders:
        return frozenset()
    scans = {main.session: mine, **{file.session: scan_usage(file) for file in holders}}
    rows = [row_to_response(row) for each in scans.values() for row in each.rows]
    attribution = attribute_responses(
        rows, {session: each.first_ms for session, each in scans.items() if each.first_ms}
    )
    return frozenset(copy.message_id for copy in attribution.copies.get(main.session, ()))
