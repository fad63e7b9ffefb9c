"""Files of fixed names on two branches: where git refuses, in the smallest histories, and that nothing is lost then.

A compaction that we commit stays where it is; one committed by hand can be picked. Rows sorted in a file of a fixed
name: of a file with n lines there are n + 1 places for new ones, so two compactions put rows into one place sooner or
later. Git takes the same lines there, or lines of one side alone.
"""

import subprocess

import pytest

from flightlog.dataset.compact import compact_and_commit, compact_dataset
from flightlog.dataset.layout import write_shard
from flightlog.model.errors import Conflict
from support.dataset_ground import Ground
from support.dataset_histories import RECORDS, environment

CHATS = ".git-ml/tracked/chats.jsonl"


class Rows(Ground):
    """A dataset that has begun."""

    def __init__(self, root):
        super().__init__(root)
        self.on()
        self.begun = self.commit("begin")

    def chat(self, number):
        row = {"kind": "chat", "id": f"chat-{number}", "timestamp": f"2026-11-02T12:00:0{number}Z", "session_id": "s",
               "input": "x", "output": "y", "tools": [], "files": [], "uuid": f"u{number}", "rev": 1}  # fmt: skip
        write_shard(self.place, f"s{number}", [row], 1, RECORDS)

    def run_git_unchecked(self, *words, cwd=None):
        return subprocess.run(
            ["git", *words],
            cwd=cwd or self.top,
            env=environment(self.root),
            capture_output=True,
            check=False,
        )

    def list_chats(self):
        return sorted(row["id"] for row in self.rows("chat"))


class Picked(Rows):
    """A dataset whose first compaction was committed by hand and picked onto a branch, and whose second was not."""

    def __init__(self, root):
        super().__init__(root)
        self.git("branch", "other")
        self.git("branch", "third")
        self.chat(1)
        self.commit("rows")
        compact_dataset(self.place, RECORDS, default="main")
        first = self.commit("compact")
        self.chat(2)
        compact_dataset(self.place, RECORDS, default="main")
        self.commit("compact again")
        for name in ("other", "third"):
            self.git("checkout", "-q", name)
            (self.top / f"{name}.txt").write_text(name)
            self.commit(name)
        self.git("checkout", "-q", "other")
        self.git("cherry-pick", first)
        self.git("checkout", "-q", "main")


@pytest.fixture
def picked_rows(tmp_path):
    return Picked(tmp_path)


def test_a_work_tree_merges_a_picked_compaction_and_each_row_is_read_once(picked_rows):
    merged = picked_rows.run_git_unchecked("merge", "-q", "--no-edit", "other")

    assert merged.returncode == 0, merged.stdout
    assert picked_rows.list_chats() == ["chat-1", "chat-2"]
    compact_dataset(picked_rows.place, RECORDS, default="main")
    assert len((picked_rows.top / CHATS).read_bytes().splitlines()) == 2


def test_merging_many_branches_at_once_is_refused_but_singly_works(picked_rows):
    refused = picked_rows.run_git_unchecked("merge", "-q", "--no-edit", "other", "third")
    assert refused.returncode != 0
    assert b"octopus" in refused.stderr
    picked_rows.git("reset", "-q", "--hard")

    assert [
        picked_rows.run_git_unchecked("merge", "-q", "--no-edit", name).returncode
        for name in ("other", "third")
    ] == [0, 0]
    assert picked_rows.list_chats() == ["chat-1", "chat-2"]


def test_server_merge_without_attributes_conflicts_on_fixed_names_only(picked_rows, tmp_path):
    bare = tmp_path / "server.git"
    picked_rows.git("clone", "-q", "--bare", str(picked_rows.top), str(bare))

    refused = picked_rows.run_git_unchecked(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "main", "other", cwd=bare
    )

    assert refused.returncode == 1
    named = refused.stdout.decode().split()[1:]
    assert CHATS in named
    assert all(name.startswith(".git-ml/tracked/") and "/pending/" not in name for name in named)


def test_reverting_the_first_commit_loses_no_row(picked_rows):
    picked_rows.git("checkout", "-q", "third")
    picked_rows.git("revert", "--no-edit", picked_rows.begun)

    merged = picked_rows.run_git_unchecked("merge", "-q", "--no-edit", "main")

    assert merged.returncode == 0, merged.stdout
    assert picked_rows.list_chats() == ["chat-1", "chat-2"]


def test_committed_compaction_is_not_picked_reverted_or_rebased(
    tmp_path,
):
    ground = Rows(tmp_path)
    ground.git("branch", "other")
    ground.chat(1)
    ground.commit("rows")
    ground.chat(2)
    done = compact_and_commit(ground.place, RECORDS, default="main")

    assert ground.git("status", "--porcelain") == ""
    assert ground.git("log", "-1", "--format=%H").strip() == done.commit
    assert len((ground.top / CHATS).read_bytes().splitlines()) == 2
    assert ground.run_git_unchecked("revert", "--no-edit", done.commit).returncode
    ground.git("checkout", "-q", "other")
    assert ground.run_git_unchecked("cherry-pick", done.commit).returncode
    assert ground.git("status", "--porcelain") == ""
    (ground.top / "more.txt").write_text("more")
    onto = ground.commit("upstream went on")
    ground.git("checkout", "-q", "main")
    ground.git("rebase", "-q", onto)
    assert not (ground.top / CHATS).exists()
    assert ground.list_chats() == ["chat-1", "chat-2"]


def test_committing_a_compaction_keeps_staged_and_changed_files(tmp_path):
    ground = Rows(tmp_path)
    ground.chat(1)
    (ground.top / "staged.txt").write_text("staged")
    ground.git("add", "staged.txt")
    (ground.top / "a.txt").write_text("changed")

    first = compact_and_commit(ground.place, RECORDS, default="main")
    again = compact_and_commit(ground.place, RECORDS, default="main")

    assert ground.git("status", "--porcelain") == " M a.txt\nA  staged.txt\n"
    assert again.commit == ""
    changed = ground.git("diff", "--name-only", f"{first.commit}^1", first.commit).split()
    assert all(name.startswith(".git-ml/") for name in changed)
    assert (
        ground.git("show", "--name-only", "--format=", f"{first.commit}^2")
        .strip()
        .startswith(".git-ml/tracked/pending")
    )


def test_in_the_middle_of_a_merge_nothing_is_compacted(picked_rows):
    (picked_rows.top / ".git-ml" / ".gitattributes").unlink()
    picked_rows.commit("no attributes")
    picked_rows.run_git_unchecked("merge", "-q", "--no-edit", "other")
    before = (picked_rows.top / CHATS).read_bytes()

    with pytest.raises(Conflict, match="MERGE_HEAD"):
        compact_and_commit(picked_rows.place, RECORDS, default="main")

    assert (picked_rows.top / CHATS).read_bytes() == before


def test_marks_of_a_conflict_in_a_file_of_rows_lose_none(picked_rows):
    (picked_rows.top / ".git-ml" / ".gitattributes").unlink()
    picked_rows.commit("no attributes")

    assert picked_rows.run_git_unchecked("merge", "-q", "--no-edit", "other").returncode == 1
    assert b"<<<<<<<" in (picked_rows.top / CHATS).read_bytes()
    assert picked_rows.list_chats() == ["chat-1", "chat-2"]
    compact_dataset(picked_rows.place, RECORDS, default="main")
    assert b"<<<<<<<" not in (picked_rows.top / CHATS).read_bytes()
    assert picked_rows.list_chats() == ["chat-1", "chat-2"]
