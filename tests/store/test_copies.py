import os

import pytest

from flightlog.model.errors import Invalid, Unavailable
from flightlog.store.directories import copy_tree, create_dir, remove_tree, set_aside


def test_a_copy_has_everything_links_modes_and_what_git_ignores(tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "run").write_text("x")
    (source / "deep" / "run").chmod(0o755)
    (source / "link").symlink_to("deep/run")
    (source / ".gitignore").write_text("deep\n")

    copy_tree(source, tmp_path / "made" / "copy")

    copy = tmp_path / "made" / "copy"
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        ".gitignore",
        "deep",
        "deep/run",
        "link",
    ]
    assert (copy / "link").is_symlink()
    assert os.access(copy / "deep" / "run", os.X_OK)
    (copy / "deep" / "run").write_text("y")
    assert (source / "deep" / "run").read_text() == "x"


def test_copy_needs_an_existing_source_and_a_free_destination(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(Invalid, match="already exists"):
        copy_tree(tmp_path, tmp_path / "there")
    with pytest.raises(Unavailable, match="cannot be copied"):
        copy_tree(tmp_path / "absent", tmp_path / "copy")


def test_what_is_set_aside_keeps_its_name_and_overwrites_nothing(tmp_path):
    for word in ("one", "two"):
        (tmp_path / "session").mkdir()
        (tmp_path / "session" / "file").write_text(word)
        set_aside(tmp_path / "session", tmp_path / "aside")

    assert (tmp_path / "aside" / "session" / "file").read_text() == "one"
    assert (tmp_path / "aside" / "session.2" / "file").read_text() == "two"


def test_a_directory_is_made_once_and_thrown_away_but_never_through_a_link(tmp_path):
    assert create_dir(tmp_path / "a" / "b")
    assert not create_dir(tmp_path / "a" / "b")
    (tmp_path / "link").symlink_to(tmp_path / "a")

    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "absent")
    assert (tmp_path / "a" / "b").is_dir()
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
