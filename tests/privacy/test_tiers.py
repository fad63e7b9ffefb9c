import subprocess

import pytest

from flightlog.model.output_files import Tier
from flightlog.privacy import tiers

RETRO = tiers.layout_of("retro")
FILES = [
    "state/analysis.json",
    "state/analysis.json.corrupt",
    "logs/debug_audit.jsonl",
    "logs/debug.jsonl",
    "logs/metrics.jsonl",
    "logs/other.jsonl",
    "resume-session.json",
    "issue-drafts/draft_1.json",
    "issues/issue_abc.json",
    "issues/CHANGELOG.md",
    "issues/notes.md",
    "issue-state.json",
    "feedback/feedback_1.json",
    "outputs/page.html",
    "tmp/x.py",
    "logs/.gitkeep",
    "issues/.gitkeep",
    "issue-drafts/.gitkeep",
    "state/.gitkeep",
    "unknown/file",
    "deep/er/file",
    "logs/metrics.jsonl.bak",
]
TRACKED = {
    "logs/metrics.jsonl",
    "issues/issue_abc.json",
    "issues/CHANGELOG.md",
    "logs/.gitkeep",
    "issues/.gitkeep",
    "issue-drafts/.gitkeep",
    "state/.gitkeep",
}


def git(folder, *words):
    done = subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words],
                          cwd=folder, capture_output=True, text=True, check=True)  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("inside", [False, True])
def test_git_can_add_only_what_the_table_names_tracked(tmp_path, inside):
    root = tmp_path / RETRO.root
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    place, text = (
        (root, tiers.render_gitignore(RETRO, root=""))
        if inside
        else (tmp_path, tiers.render_gitignore(RETRO))
    )
    (place / ".gitignore").write_text(text)
    git(tmp_path, "init", "-q")

    git(tmp_path, "add", "-A")

    added = {name.removeprefix(f"{RETRO.root}/") for name in git(tmp_path, "ls-files").splitlines()}
    assert added - {".gitignore"} == TRACKED


def test_one_character_separates_private_from_shareable_files():
    assert tiers.kind_of(f"{RETRO.root}/logs/debug.jsonl")[1].tier is Tier.PRIVATE
    assert tiers.kind_of(f"{RETRO.root}/logs/debug_audit.jsonl")[1].tier is Tier.SHAREABLE


@pytest.mark.parametrize("name", FILES)
def test_the_table_and_the_ignore_file_agree(name):
    assert (tiers.kind_of(f"a/{RETRO.root}/{name}")[1].tier is Tier.TRACKED) == (name in TRACKED)


def test_file_that_no_layout_names_is_not_ours():
    assert tiers.kind_of("src/main.py") is None


def test_the_ignore_file_keeps_the_order_of_the_source_document():
    lines = tiers.render_gitignore(RETRO).splitlines()
    base = f"{RETRO.root}/"

    assert lines.index(f"{base}*") < lines.index(f"!{base}logs/") < lines.index(f"{base}logs/*")
    assert lines.index(f"{base}logs/*") < lines.index(f"!{base}logs/metrics.jsonl")


def test_both_sides_of_a_merge_keep_their_lines(tmp_path):
    dataset = tiers.layout_of("dataset")
    file = tmp_path / ".git-ml/tracked/rows.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("0\n")
    (tmp_path / ".gitattributes").write_text(tiers.render_gitattributes(dataset))
    (tmp_path / ".gitignore").write_text(tiers.render_gitignore(dataset))
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    for branch in ("one", "two"):
        git(tmp_path, "checkout", "-q", "-b", branch, "main")
        file.write_text(f"0\n{branch}\n")
        git(tmp_path, "commit", "-qam", branch)

    git(tmp_path, "merge", "-q", "one", "-m", "both")

    assert sorted(file.read_text().split()) == ["0", "one", "two"]
