"""Laws of the ledger: one response is one message id, whatever was written, wherever, in whatever order."""

from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.archive.archive import Archive
from flightlog.model.usage import Breakdown, ModelResponse, Usage
from flightlog.usage.attribution import attribute_responses, is_better_copy
from support.transcripts import SESSION, assistant, user, write

FORK = "22222222-2222-4222-8222-222222222222"
LINE = ModelResponse("m1", "s1", "claude-opus-5-5", Usage(10, 5), 1000, "/shop", "r1")

lines = st.builds(
    ModelResponse,
    message_id=st.sampled_from(["m1", "m2", "m3"]),
    session=st.sampled_from(["s1", "s2", "s3"]),
    model=st.sampled_from(["a", "b"]),
    usage=st.builds(Usage, st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)),
    at_ms=st.integers(0, 2),
    project=st.sampled_from(["", "p", "q"]),
    request_id=st.sampled_from(["", "r1", "r2"]),
    subagent=st.sampled_from(["", "?", "a1"]),
    is_aborted=st.booleans(),
)
births = st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), st.integers(0, 2))


def by_session(ledger):
    return {
        session: sorted(response.message_id for response in copies)
        for session, copies in ledger.copies.items()
    }


@given(st.lists(lines, max_size=12), births, st.randoms())
def test_the_order_of_lines_and_files_changes_nothing(lines_read, born, chance):
    shuffled = [*lines_read, *chance.sample(lines_read, len(lines_read) // 2)]
    chance.shuffle(shuffled)

    assert (
        attribute_responses(shuffled, born).responses
        == attribute_responses(lines_read, born).responses
    )
    assert by_session(attribute_responses(shuffled, born)) == by_session(
        attribute_responses(lines_read, born)
    )


@given(st.lists(lines, max_size=12), births)
def test_each_response_counts_once_as_its_line_with_most_output(lines_read, born):
    ledger = attribute_responses(lines_read, born)

    assert sorted(response.message_id for response in ledger.responses) == sorted(
        {line.message_id for line in lines_read}
    )
    for response in ledger.responses:
        same = [line for line in lines_read if line.message_id == response.message_id]
        assert response.usage.output_tokens == max(line.usage.output_tokens for line in same)
        assert (response.usage, response.model, response.at_ms) in [
            (line.usage, line.model, line.at_ms) for line in same
        ]
        assert response.session in {line.session for line in same}


@given(st.lists(lines, max_size=12), births)
def test_a_response_is_a_copy_in_every_session_but_its_own(lines_read, born):
    ledger = attribute_responses(lines_read, born)

    for response in ledger.responses:
        elsewhere = {
            line.session for line in lines_read if line.message_id == response.message_id
        } - {response.session}
        assert {
            session for session, copies in ledger.copies.items() if response in copies
        } == elsewhere


@given(lines, lines)
def test_of_two_lines_that_differ_exactly_one_is_better(one, two):
    same = one == replace(two, message_id=one.message_id)

    assert (is_better_copy(one, two) == is_better_copy(two, one)) is same


def test_the_main_thread_wins_over_a_replay_then_the_earlier_line():
    side = replace(LINE, subagent="?", request_id="r0", at_ms=1)
    later = replace(LINE, at_ms=2000)

    assert attribute_responses([side, later, LINE], {}).responses == (LINE,)
    assert (
        attribute_responses([replace(side, usage=Usage(10, 6)), LINE], {})
        .responses[0]
        .usage.output_tokens
        == 6
    )


def test_a_fork_that_began_later_only_copies():
    copy = replace(LINE, session="s0", project="/elsewhere")
    own = replace(LINE, message_id="m2", session="s0", at_ms=5000)

    ledger = attribute_responses([copy, own, LINE], {"s0": 4000, "s1": 900})

    assert {response.message_id: response.session for response in ledger.responses} == {
        "m1": "s1",
        "m2": "s0",
    }
    assert by_session(ledger) == {"s0": ["m1"]}


def test_a_copy_belongs_to_the_session_without_news_or_with_the_first():
    copy, own = (
        replace(LINE, session="s0"),
        replace(LINE, message_id="m2", session="s0", at_ms=5000),
    )

    ledger = attribute_responses([copy, own, LINE], {"s0": 900, "s1": 900})

    assert {response.message_id: response.session for response in ledger.responses} == {
        "m1": "s1",
        "m2": "s0",
    }


def test_a_copy_that_saw_more_of_the_stream_fills_the_originals_account():
    copy = replace(LINE, session="s2", usage=Usage(10, 50), project="/elsewhere")

    (response,) = attribute_responses([LINE, copy], {"s1": 1, "s2": 2}).responses

    assert (response.session, response.project, response.usage.output_tokens) == ("s1", "/shop", 50)


# The same laws through real files.


def report(config_dir, by=Breakdown.SESSION):
    return Archive({"claude-code": (str(config_dir),)}).usage_report(by, UTC)


def test_lines_of_a_streamed_response_count_once_with_the_last_count(tmp_path):
    early = {"output_tokens": 1}
    write(
        tmp_path,
        SESSION,
        user("x"),
        *(assistant("m1", n, tokens=early) for n in (2, 3)),
        assistant("m1", 4),
    )

    assert report(tmp_path).total.usage == Usage(10, 5)
    assert report(tmp_path).total.responses == 1


def test_a_sidechain_that_replays_a_message_counts_nothing(tmp_path):
    replay = assistant("m1", 9, isSidechain=True, requestId="req_other", agentId="a7")
    write(tmp_path, SESSION, user("x"), assistant("m1", 2), replay)

    assert report(tmp_path).total.usage == Usage(10, 5)


def test_a_message_only_in_a_subagents_file_counts_once(tmp_path):
    write(tmp_path, SESSION, user("x"), assistant("m1", 2))
    inner = [assistant("m2", n, isSidechain=True, agentId="a7") for n in (3, 4)]
    write(tmp_path, "agent-a7", *inner, project=f"shop/{SESSION}/subagents")

    usage_report = report(tmp_path)

    assert usage_report.total.responses == 2
    assert [(row.key, row.usage) for row in usage_report.rows] == [(SESSION, Usage(20, 10))]


def test_a_fork_and_a_cut_copy_add_only_what_is_new(tmp_path):
    lines = [user("x", 1), assistant("m1", 2), assistant("m2", 3)]
    write(tmp_path, SESSION, *lines)
    write(tmp_path, FORK, *lines[:2], assistant("m3", 60))

    rows = {row.key: row.responses for row in report(tmp_path).rows}

    assert rows == {SESSION: 2, FORK: 1}


def test_responses_without_an_id_are_separated_by_request_and_record(tmp_path):
    nameless = [assistant("", n, requestId=f"r{n % 2}") for n in (2, 3, 4)]
    write(tmp_path, SESSION, user("x"), *nameless)

    archive = Archive({"claude-code": (str(tmp_path),)})

    assert archive.usage_report(Breakdown.DAY, UTC).total.responses == 2
    assert len(archive.read_session(SESSION).steps) == 2
