import pytest

from flightlog.model.errors import Conflict, NotFound, Unavailable
from flightlog.store import shared_files


def test_replacing_keeps_mode_and_link(tmp_path):
    real, link = tmp_path / "dotfiles" / "settings.json", tmp_path / "settings.json"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o644)
    link.symlink_to(real)

    shared_files.replace_or_conflict(link, b"old", b"new")

    assert (real.read_bytes(), real.stat().st_mode & 0o777, link.is_symlink()) == (
        b"new",
        0o644,
        True,
    )
    assert names(real.parent) == ["settings.json"]


def test_a_file_changed_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes(b"other")

    with pytest.raises(Conflict):
        shared_files.replace_or_conflict(path, b"old", b"new")

    assert (path.read_bytes(), names(tmp_path)) == (b"other", ["settings.json"])


def test_copies_are_numbered_and_never_overwritten(tmp_path):
    path = tmp_path / "settings.json"
    for text in (b"one", b"one", b"two", *(b"%d" % number for number in range(9)), b"last"):
        shared_files.back_up(path, text)

    backups = shared_files.list_backups(path)
    assert [copy.read_bytes() for copy in backups[:2]] == [b"one", b"two"]
    assert (len(backups), backups[-1].read_bytes(), backups[-1].name) == (
        12,
        b"last",
        "settings.json.flightlog-12.bak",
    )
    assert backups[0].stat().st_mode & 0o777 == 0o600


def test_a_missing_file_reads_as_none_and_a_directory_is_an_error(tmp_path):
    assert shared_files.read_if_exists(tmp_path / "absent") is None
    with pytest.raises(Unavailable, match="file system error"):
        shared_files.read_if_exists(tmp_path)


def test_a_failed_write_is_reported(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(Unavailable, match="file system error"):
        shared_files.replace_or_conflict(tmp_path / "file" / "settings.json", None, b"")
    with pytest.raises(NotFound, match="no such directory"):
        shared_files.back_up(tmp_path / "absent" / "settings.json", b"")


def test_removing_takes_an_empty_directory_along_and_no_other(tmp_path):
    for name in ("alone", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").write_text("")
    (tmp_path / "shared" / "other").write_text("")

    for name in ("alone", "shared"):
        shared_files.remove_with_dir(tmp_path / name / "settings.json")

    assert names(tmp_path) == ["shared"]


def names(directory):
    return sorted(path.name for path in directory.iterdir())
