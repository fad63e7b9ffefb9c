"""The outline of a session has the rows, ids and bars of its timeline."""

from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import build_rows
from support.recordings import CASES, archive


def test_outline_of_every_recording_has_the_ids_and_bars_of_its_timeline(tmp_path):
    for number, case in enumerate(CASES):
        source = archive(tmp_path / str(number), case)
        for name in source.recordings:
            session = source.read_session(name)
            outline = outline_session(session)

            for subagent in (None, *session.subagents):
                thread, rows = (
                    outline.threads[subagent.id if subagent else ""],
                    build_rows(session, subagent),
                )
                ids = [row.id for row in rows]
                assert [thread.id_at(row) for row in range(thread.total)] == ids, case
                assert [thread.find_row(row_id) for row_id in ids] == list(range(len(ids)))
                assert sum(bar.count for bar in thread.sum_bars()) == len(rows)
                assert sum(bar.failure_count for bar in thread.sum_bars()) == sum(
                    row.failure_count for row in rows
                )


def test_the_list_of_prompts_holds_no_words_of_the_client(tmp_path):
    source = archive(tmp_path, "2.1.325/subagents-background")
    thread = outline_session(source.read_session(source.latest_session())).threads[""]

    first, *rest = thread.prompts
    assert first == "Count the files with two background subagents."
    assert rest == ["background task"] * 2


def test_an_id_that_is_not_there_has_no_row(tmp_path):
    source = archive(tmp_path, "2.1.325/single-turn")
    thread = outline_session(source.read_session(source.latest_session())).threads[""]

    for row_id in ("", "0", "9", "1.99", "1.n99", "l1", "x", "1.x", "9" * 30):
        assert thread.find_row(row_id) is None
