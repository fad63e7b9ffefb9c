"""R9: what a person wrote survives a thousand updates, and a save between our read and our write."""

import json
import multiprocessing
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.live import state
from flightlog.live.state import AuthProfile, RuntimeSession, SessionMetadata
from flightlog.live.state_file.runtime_state import (
    cleanup_old_sessions,
    load_state,
    migrate_billing,
    read_state,
    update_state,
    upsert_auth_profile,
    upsert_session,
)
from support.live_files import EXAMPLE, EXAMPLE_MS
from support.strace_points import kill_everywhere
from support.strace_points import run as strace
from support.waiting import until

DAY_MS = 86_400_000


def put(folder, text=EXAMPLE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runtime-state.yaml").write_text(text)
    return folder / "runtime-state.yaml"


def make_change(number):
    def change(state):
        for profile in state.auth_profiles[-1:]:
            profile.billing.cost_today = float(number)
        for session in state.sessions:
            session.context.tokens_used = number
        return state

    return change


def test_the_example_read_and_written_again_is_the_same_file(tmp_path):
    path = put(tmp_path)

    update_state(tmp_path, EXAMPLE_MS, lambda state: state)

    assert path.read_text() == EXAMPLE


def test_new_file_from_the_examples_values_equals_the_example(tmp_path):
    put(tmp_path / "old")
    example = read_state(tmp_path / "old", EXAMPLE_MS)
    example.auth_profiles[0].billing.is_fresh = True  # the document wrote what was no longer true

    update_state(tmp_path / "new", EXAMPLE_MS, lambda _: example)

    left_out = "    # ... git, transcript, alerts, metadata\n"  # the document's own dots
    assert (tmp_path / "new" / "runtime-state.yaml").read_text() == EXAMPLE.replace(left_out, "")


def test_freshness_is_worked_out_when_read(tmp_path):
    path = put(tmp_path)

    assert "isFresh: true" in path.read_text()
    assert not read_state(tmp_path, EXAMPLE_MS).auth_profiles[0].billing.is_fresh
    assert read_state(tmp_path, 1769851737530 + 60_000).auth_profiles[0].billing.is_fresh


EDITS = (
    lambda text: text.replace("label: Primary Account", "label: 'Ada''s own'   # mine"),
    lambda text: text.replace("    billing:\n", "    favourite: {tea: green, cups: 3}  # mine\n    billing:\n", 1),
    lambda text: text.replace("authProfiles:\n", "# my own remark\nauthProfiles:\n"),
    lambda text: text + "\nnotes:\n  - remember the milk  # soon\n  - |\n    two\n    lines\n",
    lambda text: text.replace(
        "authProfiles:\n", "authProfiles:\n  - profileId: work\n    label: Work\n    aliases: [claude2]\n"
    ),
    lambda text: text.replace("      costToday:", "      # what I spent\n      costToday:"),
    lambda text: text.replace("status: critical", 'status: "critical"'),
    lambda text: text.replace("    health:\n", "    note: >-\n      folded\n      text\n    health:\n"),
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("    model:\n      value: Sonnet4.5\n      source: jsonInput\n",
                              "    model: {value: Sonnet4.5, source: jsonInput}\n"),
)  # fmt: skip
MACHINE = re.compile(r"^(# Last updated: |\s+(costToday|tokensUsed): ).*$", re.MULTILINE)


def humans(text):
    """The file without the values a gatherer may change in these tests."""
    return MACHINE.sub("", text)


@settings(max_examples=20)
@given(chosen=st.lists(st.sampled_from(range(len(EDITS))), min_size=1, max_size=4, unique=True))
def test_every_byte_that_a_person_wrote_survives_updates(tmp_path_factory, chosen):
    folder = tmp_path_factory.mktemp("state")
    path = put(folder)
    for number, which in enumerate(chosen):
        path.write_bytes(EDITS[which](path.read_bytes().decode()).encode())
        before = path.read_bytes().decode()
        for step in range(3):
            update_state(
                folder, EXAMPLE_MS + number, make_change(10 * number + step), durable=False
            )

        after = path.read_bytes().decode()
        assert humans(after) == humans(before)
        assert f"tokensUsed: {10 * number + 2}" in after


def test_edits_stay_in_place_through_a_thousand_updates(tmp_path):
    path = put(tmp_path)
    for edit in EDITS[:8]:
        path.write_text(edit(path.read_text()))
    before = path.read_text()

    for step in range(1000):
        update_state(tmp_path, EXAMPLE_MS, make_change(step), durable=False)

    assert humans(path.read_text()) == humans(before)
    assert "tokensUsed: 999" in path.read_text()


@pytest.mark.parametrize("way", ["in place", "another file"])
def test_a_save_between_our_read_and_our_write_is_never_lost(tmp_path, way):
    path = put(tmp_path)
    saves = []

    def change(state):
        if len(saves) < 3:  # the person saves each time we have just read
            text = path.read_text().replace("label: ", f"label: {len(saves)} ")
            saves.append(text)
            if way == "in place":
                path.write_text(text)
            else:
                (tmp_path / "swap").write_text(text)
                (tmp_path / "swap").rename(path)
        return make_change(7)(state)

    done = update_state(tmp_path, EXAMPLE_MS, change)

    assert "label: 2 1 0 Primary Account" in path.read_text()
    assert "tokensUsed: 7" in path.read_text()
    assert done.state.auth_profiles[0].label == "2 1 0 Primary Account"


def test_save_into_the_replaced_file_is_restored_by_the_next_update(tmp_path):
    path = put(tmp_path)
    editor = path.open("r+")  # an editor that writes in place holds the old file open

    update_state(tmp_path, EXAMPLE_MS, make_change(1))
    editor.write(EXAMPLE.replace("Primary Account", "Late Account..."))
    editor.close()
    update_state(tmp_path, EXAMPLE_MS, make_change(2))

    assert "label: Late Account..." in path.read_text()
    assert "tokensUsed: 2" in path.read_text()


def test_a_broken_edit_is_not_touched_and_the_last_good_state_is_used(tmp_path):
    path = put(tmp_path, EXAMPLE.replace("Primary Account", "Ada"))
    update_state(tmp_path, EXAMPLE_MS, make_change(1))
    broken = path.read_text().replace("issues: [", "issues: [[")
    path.write_text(broken)

    done = update_state(tmp_path, EXAMPLE_MS, make_change(2))
    loaded = load_state(tmp_path, EXAMPLE_MS)

    assert path.read_text() == broken
    assert re.match(r"line \d+, column \d+: ", done.error)
    assert loaded.error == done.error
    assert loaded.state.auth_profiles[0].label == "Ada"
    path.write_text(broken.replace("issues: [[", "issues: ["))
    assert update_state(tmp_path, EXAMPLE_MS, make_change(3)).error == ""
    assert "tokensUsed: 3" in path.read_text()


def test_values_of_the_wrong_kind_count_as_unknown_and_are_put_right(tmp_path):
    path = put(
        tmp_path,
        EXAMPLE.replace("costToday: 17.03", "costToday: [lots]").replace(
            "percentUsed: 26", "percentUsed: x"
        ),
    )

    state_read = read_state(tmp_path, EXAMPLE_MS)
    update_state(tmp_path, EXAMPLE_MS, make_change(5))

    assert (
        state_read.auth_profiles[0].billing.cost_today,
        state_read.sessions[0].context.percent_used,
    ) == (
        0.0,
        0,
    )
    assert state_read.auth_profiles[0].billing.total_tokens == 24863398
    assert "costToday: 5.0" in path.read_text()


@pytest.mark.parametrize("written", ["2024", "007", "1e5", "0x1F"])
def test_a_label_that_looks_like_a_number_stays_as_it_is_written(tmp_path, written):
    path = put(tmp_path, EXAMPLE.replace("label: Primary Account", f"label: {written}"))

    state_read = update_state(tmp_path, EXAMPLE_MS, make_change(5)).state

    assert state_read.auth_profiles[0].label == written
    assert f"label: {written}\n" in path.read_text()
    assert "costToday: 5.0" in path.read_text()


def test_updates_follow_the_documents_integration_test(tmp_path):
    assert read_state(tmp_path, 1).auth_profiles == []
    profile = AuthProfile("test-work", "Test Work Account")
    profile.billing.cost_today = 42.5

    upsert_auth_profile(tmp_path, profile, 1)
    assert [profile_read.label for profile_read in read_state(tmp_path, 1).auth_profiles] == [
        "Test Work Account"
    ]
    assert "costToday: 42.5" in (tmp_path / "runtime-state.yaml").read_text()
    profile.billing.cost_today, profile.billing.burn_rate_per_hour = 55.75, 12.5
    updated = upsert_auth_profile(tmp_path, profile, 2)

    assert [
        (account.billing.cost_today, account.billing.burn_rate_per_hour)
        for account in updated.auth_profiles
    ] == [(55.75, 12.5)]


def test_migration_takes_the_old_billing_once(tmp_path):
    old = {
        "costToday": 3.5,
        "burnRatePerHour": 1.25,
        "budgetRemaining": "211",
        "resetTime": "13:00",
        "odd": [1],
    }

    migrate_billing(tmp_path, 7, old)
    migrate_billing(tmp_path, 8, {"costToday": 99})

    (profile,) = read_state(tmp_path, 9).auth_profiles
    assert (profile.profile_id, profile.label) == ("default", "Primary Account")
    assert (profile.billing.cost_today, profile.billing.budget_remaining) == (3.5, 211)
    assert profile.billing.reset_time == "13:00"


@pytest.mark.parametrize(
    ("empty", "head"),
    [
        ('"sessions": []', '"sessions":'),
        ("sessions: [\n  # none\n]", "sessions:\n  # none"),
        ("sessions: ~", "sessions:"),
        ("sessions: null  # none", "sessions:  # none"),
    ],
)
def test_first_item_follows_an_empty_list_in_any_notation(tmp_path, empty, head):
    path = put(tmp_path, f"authProfiles: ~\n{empty}\n")

    upsert_session(tmp_path, RuntimeSession(session_id="s1"), EXAMPLE_MS)
    upsert_auth_profile(tmp_path, AuthProfile("work"), EXAMPLE_MS)

    assert f"\n{head}\n  - sessionId: s1\n" in path.read_text()
    (tmp_path / ".flightlog" / "state.bin").unlink()
    again = load_state(tmp_path, EXAMPLE_MS)
    assert again.error == ""
    assert [session.session_id for session in again.state.sessions] == ["s1"]
    assert [profile.profile_id for profile in again.state.auth_profiles] == ["work"]


def test_old_sessions_are_removed_with_their_text(tmp_path):
    path = put(tmp_path)
    fresh = RuntimeSession("b", metadata=SessionMetadata(EXAMPLE_MS, EXAMPLE_MS))
    upsert_session(tmp_path, fresh, EXAMPLE_MS)

    done = cleanup_old_sessions(tmp_path, EXAMPLE_MS + 6 * DAY_MS)

    assert [session for session, _ in done.removed] == ["a8e855a4-1b42-4793-a1b8-0a533aba93f8"]
    assert "# ... git, transcript, alerts, metadata" in done.removed[0][1]
    assert [session.session_id for session in read_state(tmp_path, 1).sessions] == ["b"]
    cleanup_old_sessions(tmp_path, EXAMPLE_MS + 8 * DAY_MS)
    assert read_state(tmp_path, 1).sessions == []
    assert path.read_text().endswith("sessions: []\n")


def test_files_and_directories_are_for_their_owner_alone(tmp_path):
    folder = tmp_path / "session-health"
    update_state(folder, 1, lambda state: state)

    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def _count(folder, name, times):
    for _ in range(times):

        def one_more(state):
            sessions = {session.session_id: session for session in state.sessions}
            mine = sessions.get(name) or RuntimeSession(name)
            mine.context.tokens_used += 1
            shared = sessions.get("shared") or RuntimeSession("shared")
            shared.context.tokens_used += 1
            known = {session.session_id: session for session in [*state.sessions, mine, shared]}
            state.sessions = list(known.values())
            return state

        update_state(Path(folder), 1, one_more, durable=False)


def test_sixteen_gatherers_and_a_thousand_updates_lose_none(tmp_path):
    put(tmp_path)
    context = multiprocessing.get_context("fork")
    share = [63] * 8 + [62] * 8
    crowd = [
        context.Process(target=_count, args=(str(tmp_path), f"s{at}", n))
        for at, n in enumerate(share)
    ]

    for process in crowd:
        process.start()
    for process in crowd:
        process.join(120)

    tokens = {
        session.session_id: session.context.tokens_used
        for session in read_state(tmp_path, 1).sessions
    }
    assert [process.exitcode for process in crowd] == [0] * 16
    assert tokens.pop("shared") == 1000
    assert [tokens[f"s{at}"] for at in range(16)] == share
    assert "label: Primary Account" in (tmp_path / "runtime-state.yaml").read_text()


def test_killed_at_every_call_the_file_is_the_old_one_or_the_new_one(tmp_path):
    code = """
from flightlog.live.state_file.runtime_state import update_state
def change(state):
    state.sessions[0].context.tokens_used = 99
    state.auth_profiles[0].billing.cost_today = 99.0
    return state
update_state(root, 1, lambda state: state)
begin()
update_state(root, 2, change)
ack("done")
end()
"""
    new = []

    def check(root, acknowledged):
        text = (root / "runtime-state.yaml").read_text()
        is_new = "tokensUsed: 99" in text
        assert is_new == ("costToday: 99.0" in text)
        if not is_new:
            assert (text, acknowledged) == (EXAMPLE, [])
        update_state(root, 3, make_change(5))
        assert "tokensUsed: 5" in (root / "runtime-state.yaml").read_text()
        new.append(is_new)

    points = kill_everywhere(code, tmp_path / "runs", put, check)

    assert {True, False} == set(new)
    assert {"renameat2", "fsync", "flock"} <= {name for name, _ in points}


def test_a_state_reads_as_json(tmp_path):
    put(tmp_path)

    document = json.loads(json.dumps(state.to_wire(read_state(tmp_path, EXAMPLE_MS))))

    assert list(document["authProfiles"][0]) == ["profileId", "label", "billing", "metadata"]


def test_save_between_last_read_and_exchange_is_restored_and_read_again(tmp_path):
    path = put(tmp_path / "state")
    code = """
from flightlog.live.state_file.runtime_state import update_state
def change(state):
    state.sessions[0].context.tokens_used = 99
    return state
update_state(root, 1, change)
"""
    # The exchange is held up at its door for half a second, once.
    options = (
        "-o",
        "/dev/null",
        "-e",
        "trace=renameat2",
        "-e",
        "inject=renameat2:delay_enter=500000:when=1",
    )
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(strace, code, path.parent, *options)
        until(
            lambda: [
                temp
                for temp in path.parent.glob(".*.tmp")
                if b"tokensUsed: 99" in temp.read_bytes()
            ]
        )
        time.sleep(0.2)
        (tmp_path / "editor").write_text(
            EXAMPLE.replace("Primary Account", "Another Account")
        )  # as long as before
        (tmp_path / "editor").rename(path)
        assert done.result(60).returncode == 0, done.result().stderr

    assert "label: Another Account" in path.read_text()
    assert "tokensUsed: 99" in path.read_text()
