"""Directories that appear whole, or not at all."""

import pytest

from flightlog.store.directories import publish_dir, remove_abandoned_dirs, staging_dir


def test_a_directory_appears_with_all_that_is_in_it(tmp_path):
    with staging_dir(tmp_path, "thing") as making:
        (making / "a").write_text("x")
        assert not (tmp_path / "thing").exists()
        assert publish_dir(making, tmp_path / "thing")

    assert (tmp_path / "thing" / "a").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_failed_creation_leaves_no_directory(tmp_path):
    def fail():
        with staging_dir(tmp_path, "thing") as making:
            (making / "a").write_text("x")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()

    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_stays_as_it_is(tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "own").touch()

    with staging_dir(tmp_path, "thing") as making:
        assert not publish_dir(making, tmp_path / "thing")

    assert [path.name for path in (tmp_path / "thing").iterdir()] == ["own"]


def test_only_leftovers_of_dead_processes_are_removed(tmp_path):
    dead = tmp_path / ".thing.999999-1-0123456789ab.making"
    dead.mkdir()
    (dead / "a").touch()

    with staging_dir(tmp_path, "other") as living:
        assert remove_abandoned_dirs(tmp_path) == [dead]
        assert living.exists()

    assert not dead.exists()
