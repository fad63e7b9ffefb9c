"""The commands as a person runs them: consent, the next step in every message, the older name."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.setup import install
from support import hooking
from support.cli_runs import Ran, environment
from support.dataset_ground import turn

SESSION = "13a84f73-1111-4111-8111-111111111111"
BIN = Path(sys.executable).parent


def run(ground, *words, program="flightlog", **more):
    home = {"FLIGHTLOG_HOME": str(ground.root / "home"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    ran = subprocess.run([BIN / program, *words], cwd=ground.top, env=environment(ground.config, **home, **more),
                         capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL)  # fmt: skip
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_a_repository_cannot_agree_to_words_for_the_person_who_cloned_it(ground):
    ground.write(SESSION, *turn(1, "zebra"))
    (ground.top / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")

    before = run(ground, "dataset", "session", "sync-to-jsonl")
    assert ground.rows("chat")[0]["input"] is None
    run(ground, "trust", "--yes")
    after = run(ground, "dataset", "session", "sync-to-jsonl")

    assert "words are left out" in before.err
    assert "track_words = true" in before.err
    assert after.err == ""
    assert ground.rows("chat")[0]["input"] == "zebra"
    (ground.top / "flightlog.toml").write_text("[dataset]\ntrack_words = true\npush = true\n")
    assert "track_words" not in json.dumps(ground.rows("chat"))
    assert json.loads(run(ground, "dataset", "stats", "--json").out)["words"]["tracked"] is False


def test_init_begins_a_dataset_once_and_tells_agents(ground):
    (ground.top / "CLAUDE.md").write_text("# Rules\n\nBe kind.\n")
    words = ("init", "--project", "--yes", "--no-guard", "--dataset", "--words")

    first, again = (run(ground, *words) for _ in range(2))

    assert (first.code, again.code) == (0, 0), first.err
    rules = (ground.top / "CLAUDE.md").read_text()
    assert rules.startswith("# Rules\n\nBe kind.\n")
    assert rules.count("flightlog dataset: begin") == 1
    assert (ground.top / "flightlog.toml").read_text() == "[dataset]\ntrack_words = true\n"
    ground.write(SESSION, *turn(1, "zebra"))
    run(ground, "dataset", "session", "sync-to-jsonl")
    assert ground.rows("chat")[0]["input"] == "zebra"


def test_settle_captures_where_rows_are_collected_and_nowhere_else(ground):
    ground.write(SESSION, *turn(1))
    off = json.loads(run(ground, "settle", SESSION, "--json").out)["dataset_rows"]
    assert not (ground.top / ".git-ml").exists()
    ground.on()
    switched_off = json.loads(
        run(ground, "settle", SESSION, "--json", ML_COLLECTION_ENABLED="0").out
    )["dataset_rows"]

    on, again = (
        json.loads(run(ground, "settle", SESSION, "--json").out)["dataset_rows"] for _ in range(2)
    )

    assert (off, switched_off, on, again) == (0, 0, 3, 0)
    assert len(ground.rows("chat")) == 1


def test_status_and_doctor_report_the_rows_of_this_repository(ground):
    ground.write(SESSION, *turn(1))
    run(ground, "dataset", "session", "sync-to-jsonl")

    assert "not backed up yet" in run(ground, "status").out
    assert "not backed up yet" in run(ground, "dataset", "status").out
    reports = [
        json.loads(run(ground, *words, "--json").out)
        for words in (("status",), ("dataset", "status"))
    ]
    assert reports[0]["dataset"]["unpushed_shards"] == reports[1]["unpushed_shards"] == 2
    (ground.top / ".gitignore").write_text(".git-ml\n")
    assert "git ignores the training rows" in run(ground, "doctor").out


def test_stats_compact_judge_forget_retain_and_export_in_a_row(ground, tmp_path):
    ground.write(SESSION, *turn(1, "zebra"), *turn(2))
    run(ground, "dataset", "session", "sync-to-jsonl", "--compact", program="flightlog")
    stats = json.loads(run(ground, "stats", "--json", program="ml-data-collector").out)
    assert stats["counts"] == {
        "sessions": 1,
        "chats": 2,
        "actions": 0,
        "commits": 1,
        "orchestration": 0,
    }
    assert (stats["pending_shards"], stats["milestones"]["file_prediction"]["percent"]) == (0, 0.2)
    chat = ground.rows("chat")[0]["id"]

    assert run(ground, "dataset", "judge", chat, "feedback", '{"rating": "good"}').code == 0
    assert ground.rows("chat")[0]["feedback"] == {"rating": "good"}
    asked = run(ground, "dataset", "forget", chat)
    assert (asked.code, len(ground.rows("chat"))) == (1, 2)
    assert "add --yes" in asked.err
    assert run(ground, "dataset", "forget", chat, "--yes").code == 0
    assert len(ground.rows("chat")) == 1
    run(ground, "dataset", "session", "sync-to-jsonl")
    assert len(ground.rows("chat")) == 1
    assert (
        run(ground, "dataset", "retain", "--dry-run", FLIGHTLOG_DATASET_KEEP_DAYS="99999").out == ""
    )
    due = run(ground, "dataset", "retain", "--dry-run", "--json", FLIGHTLOG_DATASET_KEEP_DAYS="1")
    done = run(ground, "dataset", "retain", "--yes", "--json", FLIGHTLOG_DATASET_KEEP_DAYS="1")
    assert due.out == done.out
    out = tmp_path / "rows.jsonl"
    assert run(ground, "dataset", "export", "--output", str(out)).code == 0
    assert run(ground, "dataset", "check").code == 0


def test_a_compaction_says_how_to_commit_it_and_commits_it(ground):
    ground.write(SESSION, *turn(1))
    run(ground, "dataset", "session", "sync-to-jsonl")

    plain = run(ground, "dataset", "tracked", "compact").out
    committed = run(ground, "dataset", "tracked", "compact", "--commit", "--json")
    again = run(ground, "dataset", "tracked", "compact", "--commit")

    assert plain.splitlines()[-1] == "to commit it: flightlog dataset tracked compact --commit"
    assert json.loads(committed.out)["commit"] == ground.git("rev-parse", "HEAD").strip()
    assert again.out.splitlines()[-1] == "nothing to commit, the base files are unchanged"
    ground.git("checkout", "-q", "-b", "work")
    assert "git add .git-ml" in run(ground, "dataset", "tracked", "compact", "--commit").out
    ground.git("checkout", "-q", "main")
    assert ground.git("status", "--porcelain") == ""
    assert len(ground.git("show", "HEAD:.git-ml/tracked/chats.jsonl").splitlines()) == 1


def test_errors_say_what_to_do_next(ground, tmp_path):
    nothing = run(ground, "dataset", "stats")
    assert (nothing.code, "flightlog dataset session sync-to-jsonl" in nothing.err) == (1, True)
    run(ground, "dataset", "session", "sync-to-jsonl")
    unknown = run(ground, "dataset", "judge", "chat-nobody", "feedback", "good")
    assert (unknown.code, "no row id starts with" in unknown.err) == (1, True)
    away = run(ground, "dataset", "push")
    assert (away.code, "does not appear to be a git repository" in away.err) == (69, True)
    assert "git remote add origin URL" in away.err
    (ground.top / ".git" / "MERGE_HEAD").write_text(ground.git("rev-parse", "HEAD"))
    busy = run(ground, "dataset", "tracked", "compact", "--commit")
    assert (busy.code, "git is in the middle of something (MERGE_HEAD)" in busy.err) == (75, True)


def make_clone(ground):
    """A clone that ships training rows and settings that want words and a push."""
    (ground.top / ".git-ml/tracked/pending").mkdir(parents=True, exist_ok=True)
    (ground.top / ".git-ml/tracked/pending/.gitkeep").touch()
    (ground.top / "flightlog.toml").write_text(
        '[dataset]\ntrack_words = true\npush = true\nremote = "../evil.git"\n'
    )
    ground.write(SESSION, *turn(1, "zebra"))
    return ground


def settle(ground, **more):
    done = run(ground, "settle", SESSION, "--json", **more)
    return json.loads(done.out), done


@pytest.mark.parametrize(
    ("allowed", "rows", "words"),
    [
        ("", 0, None),
        ("rows", 3, None),
        ("words", 3, "zebra"),
        ("push", 3, None),
        (" words , push", 3, "zebra"),
    ],
)
def test_clone_gets_rows_only_as_the_environment_allows(ground, allowed, rows, words):
    report, _ = settle(make_clone(ground), FLIGHTLOG_TRUST=allowed)
    shown = json.loads(run(ground, "trust", "--json", FLIGHTLOG_TRUST=allowed).out)["dataset"]

    assert report["dataset_rows"] == rows
    assert {row["input"] for row in ground.rows("chat")} == ({words} if rows else set())
    assert shown["rows"] is bool(rows)
    assert (shown["words"], shown["push"]) == ("words" in allowed, "push" in allowed)
    assert shown["sources"]["trust"] == shown["sources"]["hook"] == []


def test_own_settings_alone_put_no_words_into_a_clone(ground):
    report, _ = settle(
        make_clone(ground), FLIGHTLOG_TRUST="rows", FLIGHTLOG_DATASET_TRACK_WORDS="true"
    )

    assert report["dataset_rows"] == 3
    assert ground.rows("chat")[0]["input"] is None


def test_words_count_as_allowed_only_with_the_settings(ground):
    (ground.top / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    run(ground, "dataset", "session", "sync-to-jsonl")  # begins the dataset: rows are allowed
    shown = [json.loads(run(ground, "trust", "--json").out)["dataset"]]
    run(ground, "trust", "--yes")
    shown.append(json.loads(run(ground, "trust", "--json").out)["dataset"])

    assert [one["words"] for one in shown] == [False, True]
    assert [one["sources"]["trust"] for one in shown] == [["rows"], ["push", "rows", "words"]]


def test_unknown_word_in_the_environment_is_named_and_allows_nothing(ground):
    settle, asked = (
        run(make_clone(ground), *words, FLIGHTLOG_TRUST="rows,everything")
        for words in (("settle", SESSION), ("trust",))
    )

    assert (settle.code, asked.code, ground.rows("chat")) == (4, 4, [])
    assert "'everything'" in asked.err
    assert "rows, words, push" in asked.err


def test_trust_on_this_machine_allows_rows_words_and_takes_them_back(ground):
    make_clone(ground)
    before = run(ground, "trust")
    run(ground, "trust", "--yes")
    shown = json.loads(run(ground, "trust", "--json").out)["dataset"]
    (ground.top / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    changed, _ = settle(ground)

    assert before.code == 1
    assert "dataset.rows = true" in before.out
    assert shown["sources"] == {"trust": ["push", "rows", "words"], "environment": [], "hook": []}
    assert (changed["dataset_rows"], ground.rows("chat")[0]["input"]) == (3, None)
    run(ground, "trust", "--revoke")
    ground.write(SESSION, *turn(1, "zebra"), *turn(2, "yak"))
    assert settle(ground)[0]["dataset_rows"] == 0


@pytest.mark.parametrize(("project", "rows"), [("shop", 3), ("elsewhere", 0), ("", 0)])
def test_hook_of_the_repository_itself_allows_rows_without_words(ground, project, rows):
    make_clone(ground)
    user = install.build_hook_command(Path(sys.executable))
    own = install.build_hook_command(Path(sys.executable), flags=["--project"])
    event = hooking.payload("PreToolUse", SESSION, cwd=str(ground.top))
    home = ground.root / "home"
    for command in (user, own) if project else (user,):
        hooking.run_hook(home, event, run=command, CLAUDE_PROJECT_DIR=str(ground.root / project))

    report, _ = settle(ground, FLIGHTLOG_DATASET_TRACK_WORDS="true")

    assert report["dataset_rows"] == rows
    assert [row["input"] for row in ground.rows("chat")] == [None] * bool(rows)


def test_collectors_script_writes_rows_without_words_and_a_commit_none(ground):
    make_clone(ground)
    words = {"FLIGHTLOG_DATASET_TRACK_WORDS": "true"}

    commits = run(ground, "dataset", "session", "sync-to-jsonl", "--commits", **words)
    assert commits.out.startswith("0 ")
    run(ground, "dataset", "session", "sync-to-jsonl", "--hook", **words)

    assert ground.rows("chat")[0]["input"] is None
    assert settle(ground)[0]["dataset_rows"] == 0


def test_rows_never_go_where_a_link_in_the_clone_leads(ground):
    make_clone(ground)
    shutil.rmtree(ground.top / ".git-ml")
    outside = ground.root / "outside"
    (outside / "tracked").mkdir(parents=True)
    (ground.top / ".git-ml").symlink_to(outside)

    report, _ = settle(ground, FLIGHTLOG_TRUST="rows")

    assert report["dataset_rows"] == 0
    assert "a symbolic link leads out of the project" in report["failures"][0]
    assert list(outside.rglob("*")) == [outside / "tracked"]
    assert run(ground, "status").code == 0


def test_judge_takes_a_reward_below_zero(ground):
    ground.write(SESSION, *turn(1))
    run(ground, "dataset", "session", "sync-to-jsonl")
    (chat,) = ground.rows("chat")

    done = run(ground, "dataset", "judge", chat["id"], "reward", "-1", "--json")

    assert (done.code, json.loads(done.out)["value"]) == (0, -1), done.err
    assert ground.rows("chat")[0]["reward"] == -1


def test_judge_takes_only_values_that_a_field_of_the_row_can_have(ground):
    ground.write(SESSION, *turn(1))
    run(ground, "dataset", "session", "sync-to-jsonl")
    (chat,), (commit,) = ground.rows("chat"), ground.rows("commit")

    wrong = [
        run(ground, "dataset", "judge", *words)
        for words in (
            (chat["id"], "feedback", "maybe"),
            (chat["id"], "reward", "high"),
            (chat["id"], "reward", "NaN"),
            (chat["id"], "reward", "true"),
            (chat["id"], "ci_result", "success"),
            (chat["id"], "mood", "good"),
            (commit["hash"], "ci_result", "sure"),
            (commit["hash"], "reverted_by", "yesterday"),
        )
    ]
    rewarded = run(ground, "dataset", "judge", chat["id"], "reward", "0.75")

    assert [done.code for done in wrong] == [2] * 8
    assert "one of: good, bad, neutral" in wrong[0].err
    assert "a number" in wrong[1].err
    assert "one of: feedback, related_commit, reward, task" in wrong[5].err
    assert rewarded.code == 0
    assert ground.rows("chat")[0]["reward"] == 0.75
    assert not {"mood", "ci_result", "feedback"} & ground.rows("chat")[0].keys()


def test_sync_says_that_git_ignores_its_rows_and_makes_the_base_files(ground):
    (ground.top / ".gitignore").write_text(".git-ml/\n")
    ground.write(SESSION, *turn(1))

    done = run(ground, "dataset", "session", "sync-to-jsonl")

    assert "git ignores the rows" in done.err
    names = ("commits", "sessions", "chats", "orchestration", "actions")
    assert [(ground.place.tracked_dir / f"{name}.jsonl").read_bytes() for name in names] == [
        b""
    ] * 5
    assert json.loads(run(ground, "dataset", "session", "sync-to-jsonl", "--json").out)[
        "is_ignored"
    ]


def test_sync_after_consent_was_withdrawn_names_the_rows_with_words(ground):
    (ground.top / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    ground.write(SESSION, *turn(1))
    run(ground, "trust", "--yes")
    run(ground, "dataset", "session", "sync-to-jsonl")
    run(ground, "trust", "--revoke")

    before = run(ground, "dataset", "session", "sync-to-jsonl").err
    run(ground, "dataset", "strip-words", "--yes")
    after = run(ground, "dataset", "session", "sync-to-jsonl").err

    assert "1 earlier chat with words: flightlog dataset strip-words" in before
    assert "earlier chat" not in after


def test_dry_runs_are_summaries(ground):
    ground.write(SESSION, *(record for number in range(1, 40) for record in turn(number)))
    run(ground, "dataset", "session", "sync-to-jsonl")

    due = run(ground, "dataset", "retain", "--dry-run", FLIGHTLOG_DATASET_KEEP_DAYS="1")
    none = run(ground, "dataset", "retain", "--dry-run", FLIGHTLOG_DATASET_KEEP_DAYS="0")
    hooks = run(ground, "dataset", "install-hooks", "--dry-run")

    assert due.out.splitlines()[0].startswith("39 chat rows would be removed, the oldest ")
    assert len(due.out.splitlines()) <= 3
    assert (none.code, "would remove every row" in none.err) == (4, True)
    assert {line.partition(":")[0] for line in hooks.out.splitlines()} == {"would be written"}
    assert "settings.json" in hooks.out


def test_rows_that_another_tool_appended_to_a_base_file_are_seen_by_git(ground):
    run(ground, "dataset", "session", "sync-to-jsonl")
    (ground.place.tracked_dir / "chats.jsonl").write_text('{"id": "chat-1", "session_id": "s"}\n')
    run(ground, "dataset", "session", "sync-to-jsonl")

    ground.commit("rows")

    assert "chat-1" in ground.git("show", "HEAD:.git-ml/tracked/chats.jsonl")
