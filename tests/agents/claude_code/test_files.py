import os
import shutil
import tempfile
from pathlib import Path

import pytest

from flightlog.agents.claude_code.files import (
    find_transcripts,
    find_unread_files,
    session_files,
    spilled_output_path,
    subagent_info_path,
)
from flightlog.model.session import SessionFile
from support.recordings import config_dir
from support.transcripts import SESSION, user, write
from support.unprivileged import run_unprivileged


def find_files(root):
    return find_transcripts(str(root))


def names(root):
    return [(item.session, item.subagent) for item in find_files(root).files]


@pytest.fixture
def open_dir():
    """A directory that another user can reach."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)
    shutil.rmtree(root)


def test_subagents_are_found_in_each_layout(tmp_path):
    old = names(config_dir(tmp_path / "1", "1.0.128/subagent"))
    beside = names(config_dir(tmp_path / "2", "2.0.76/subagent"))
    below = names(config_dir(tmp_path / "3", "2.1.325/subagent-foreground"))

    assert [subagent for _, subagent in old] == [""]
    assert len(beside) == 8
    # Warm-up agents name sessions that left no file of their own.
    assert {session[:8] for session, subagent in beside if subagent} == {
        "c8efdde1",
        "1c06a166",
        "da11e55c",
    }
    assert sorted(subagent for _, subagent in below) == ["", "a18a8ad043c6ab8dd"]


def test_missing_directory_has_no_files(tmp_path):
    assert find_files(tmp_path / "absent").files == ()
    assert find_files(tmp_path / "absent").damage == ()


def test_a_file_where_the_projects_should_be_is_damage(tmp_path):
    (tmp_path / "projects").write_text("")

    assert [span.path for span in find_files(tmp_path).damage] == [str(tmp_path / "projects")]


@pytest.mark.parametrize(
    "name",
    [
        b"\xff",
        b"a b",
        b"-rf",
        b"..x",
        b"a\nb",
        b"\x1b[31mred",
        b"a\x07",
        b"$(id)",
        b"x" * 140,
        "é".encode(),
        b"",
    ],
)
def test_a_file_whose_name_is_no_id_is_reported_and_left_alone(tmp_path, name):
    write(tmp_path, SESSION, user("hello"))
    path = os.fsencode(tmp_path / "projects" / "shop") + b"/" + name + b".jsonl"
    Path(os.fsdecode(path)).write_bytes(b"{}\n")

    listing = find_files(tmp_path)

    assert [item.session for item in listing.files] == [SESSION]
    assert [os.fsencode(span.path) for span in listing.damage] == [path]


def test_a_directory_of_subagents_without_an_id_is_reported(tmp_path):
    write(tmp_path, SESSION, user("hello"))
    (tmp_path / "projects/shop/a b/subagents").mkdir(parents=True)
    (tmp_path / "projects/shop/memory x").mkdir()

    assert [Path(span.path).parent.name for span in find_files(tmp_path).damage] == ["a b"]


def test_a_subagent_whose_name_is_no_id_is_reported(tmp_path):
    write(tmp_path, SESSION, user("hello"))
    folder = tmp_path / "projects/shop" / SESSION / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-\x1b]0;x.jsonl").write_text("{}\n")
    (folder / "agent-a1.meta.json").write_text("{}")

    assert names(tmp_path) == [(SESSION, "")]
    assert len(find_files(tmp_path).damage) == 1


def test_a_subagent_file_beside_a_session_belongs_to_the_one_it_names(tmp_path):
    write(tmp_path, "agent-a1", b"torn {", user("hello", sessionId=SESSION))
    write(tmp_path, "agent-a2", user("hello", sessionId="../../etc"))
    write(tmp_path, "agent-a3", user("hello", sessionId=""))
    write(tmp_path, "agent-a4")

    assert names(tmp_path) == [(SESSION, "a1")]
    assert len(find_files(tmp_path).damage) == 3


def test_a_directory_named_like_a_transcript_is_no_transcript(tmp_path):
    write(tmp_path, SESSION, user("hello"))
    (tmp_path / "projects/shop/b.jsonl").mkdir()
    (tmp_path / "projects/shop/c.jsonl").symlink_to(tmp_path / "projects/shop/b.jsonl")

    assert names(tmp_path) == [(SESSION, "")]


@pytest.mark.parametrize("name", ["b.jsonl", "agent-b.jsonl"])
def test_named_pipe_is_reported_without_blocking(tmp_path, name):
    write(tmp_path, SESSION, user("hello"))
    os.mkfifo(tmp_path / "projects/shop" / name)

    listing = find_files(tmp_path)

    assert [item.session for item in listing.files] == [SESSION]
    assert [span.reason for span in listing.damage] == ["not a file"]


def test_links_that_go_in_circles_or_nowhere_hide_nothing(tmp_path):
    write(tmp_path, SESSION, user("hello"))
    for link in ("loop", "shop/loop.jsonl", "shop/loop"):
        (tmp_path / "projects" / link).symlink_to(tmp_path / "projects" / link)
    (tmp_path / "projects/gone").symlink_to(tmp_path / "absent")
    (tmp_path / "projects/up").symlink_to(tmp_path)

    assert names(tmp_path) == [(SESSION, "")]


def test_a_project_reached_by_a_link_is_found(tmp_path):
    write(tmp_path / "elsewhere", SESSION, user("hello"))
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects/shop").symlink_to(tmp_path / "elsewhere/projects/shop")

    assert names(tmp_path) == [(SESSION, "")]


def test_an_unreadable_directory_is_reported_and_hides_no_other(open_dir):
    for path in (
        write(open_dir, "a", user("x")),
        write(open_dir, "b", user("x"), project="closed"),
    ):
        path.parent.chmod(0o755)
    (open_dir / "projects").chmod(0o755)
    (open_dir / "projects/closed").chmod(0)

    listing = run_unprivileged(lambda: find_transcripts(str(open_dir)))

    assert [item.session for item in listing.files] == ["a"]
    assert [(span.path, span.reason) for span in listing.damage] == [
        (str(open_dir / "projects/closed"), "Permission denied")
    ]


def test_the_files_of_one_session_are_the_same_as_in_the_whole_list(tmp_path):
    root = config_dir(tmp_path, "2.0.76/subagent", "2.1.325/subagents-background")
    everything = find_files(root).files

    for item in {file.session: file for file in everything if not file.subagent}.values():
        alone = session_files(str(Path(item.path).parent), item.session)
        assert {file.path for file in alone} == {
            file.path for file in everything if file.session == item.session
        }


def test_a_spilled_output_is_found_by_name_beside_its_transcript():
    main = SessionFile("/c/projects/p/s1.jsonl", "s1", 0, 0)
    subagent = SessionFile("/c/projects/p/s1/subagents/agent-a1.jsonl", "s1", 0, 0, "a1")

    for path in ("/somewhere/else/b7.txt", "../../../b7.txt", "b7.txt"):
        assert spilled_output_path(main, path) == "/c/projects/p/s1/tool-results/b7.txt"
        assert spilled_output_path(subagent, path) == "/c/projects/p/s1/tool-results/b7.txt"
    assert subagent_info_path(subagent) == "/c/projects/p/s1/subagents/agent-a1.meta.json"


def test_a_workflows_agents_are_found_and_its_journal_is_not(tmp_path):
    root = config_dir(tmp_path, "2.1.325/workflow")

    files = find_files(root).files

    assert [file.subagent[:3] for file in files] == ["", "a0c", "a34", "a51"]
    folder = next(root.glob("projects/*"))
    assert len(session_files(str(folder), files[0].session)) == 4
    assert find_unread_files(str(root)) == []


def test_transcripts_in_an_unknown_layout_are_reported(tmp_path):
    write(tmp_path, SESSION, user("x"))
    chat = write(tmp_path, "s/chat", {"costUSD": 1})
    deep = write(tmp_path, f"{SESSION}/swarm/agent-a1", user("x"))

    assert find_unread_files(str(tmp_path)) == sorted([str(chat), str(deep)])
