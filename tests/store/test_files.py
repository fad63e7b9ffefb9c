import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.errors import Invalid, Unavailable
from flightlog.store.files import (
    create_file,
    ensure_dir,
    is_running,
    process_name,
    process_tag,
    quarantine_file,
    remove_stale_temps,
    replace_file,
    resolve_inside,
    sync_files,
)
from support.strace_points import fail_everywhere, kill_everywhere

REPLACE = """
from flightlog.store.files import replace_file
from flightlog.model.errors import FlightlogError
begin()
for name in ("page", "new/page"):
    try: replace_file(root / name, b"new" * 1000); ack(name)
    except FlightlogError as error: print(error.message, file=sys.stderr)
end()
"""
QUARANTINE = """
from flightlog.store.files import quarantine_file
begin()
ack(quarantine_file(root / "page").name)
end()
"""
OLD, NEW = b"old" * 1000, b"new" * 1000


def write_old(root: Path) -> None:
    (root / "page").write_bytes(OLD)


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_a_file_holds_what_was_last_put_there_for_its_owner_only(
    tmp_path_factory, first, second, durable
):
    path = tmp_path_factory.mktemp("home") / "deep" / "page"
    replace_file(path, first)
    replace_file(path, second, durable=durable)

    assert path.read_bytes() == second
    assert [file.name for file in path.parent.iterdir()] == ["page"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_kill_during_a_replacement_leaves_the_old_or_the_new_file(tmp_path):
    def check(root, acked):
        assert (root / "page").read_bytes() in ((NEW,) if "page" in acked else (OLD, NEW))
        if "new/page" in acked:
            assert (root / "new/page").read_bytes() == NEW
        left = [*root.glob(".*.tmp"), *root.glob("new/.*.tmp")]
        swept = [
            path
            for folder in (root, root / "new")
            if folder.is_dir()
            for path in remove_stale_temps(folder, 0, 2**40)
        ]
        assert sorted(swept) == sorted(left)
        replace_file(root / "page", b"next")
        assert (root / "page").read_bytes() == b"next"

    assert len(kill_everywhere(REPLACE, tmp_path, write_old, check)) > 12


def test_a_failing_disk_leaves_the_old_file_and_no_litter(tmp_path):
    def check(root, acked):
        assert (root / "page").read_bytes() in ((NEW,) if "page" in acked else (OLD, NEW))
        assert {"page", "new/page"} & set(acked), "one call fails, so one of the two was written"
        assert list(root.glob(".*.tmp")) == []

    assert (
        fail_everywhere(REPLACE, tmp_path, ["EIO", "ENOSPC", "EROFS", "EACCES"], write_old, check)
        > 20
    )


def test_evidence_is_never_overwritten(tmp_path):
    names = []
    for content in (b"first", b"second", b"third"):
        (tmp_path / "page").write_bytes(content)
        names.append(quarantine_file(tmp_path / "page").name)

    assert names == ["page.damaged-1", "page.damaged-2", "page.damaged-3"]
    assert [(tmp_path / name).read_bytes() for name in names] == [b"first", b"second", b"third"]


def test_dying_at_any_system_call_of_a_quarantine_keeps_the_evidence(tmp_path):
    def check(root, acked):
        old_pages = [path for path in root.glob("page*") if path.read_bytes() == OLD]
        assert len(old_pages) == 1
        if acked:
            assert old_pages[0].name == acked[0]

    assert kill_everywhere(QUARANTINE, tmp_path, write_old, check)


def test_only_old_litter_of_dead_processes_is_swept(tmp_path):
    dead = subprocess.run(
        [sys.executable, "-c", _PRINT_TAG], capture_output=True, text=True, check=True
    ).stdout.strip()
    other_boot = dead.rpartition("-")[0] + "-00ff"
    names = [
        f".a.{dead}-7.tmp",
        f".b.{other_boot}-7.tmp",
        f".c.{process_tag()}-7.tmp",
        "d.tmp",
        ".e.tmp",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (1000, 1000))

    assert remove_stale_temps(tmp_path, 3600, 4000) == []
    assert [path.name for path in remove_stale_temps(tmp_path, 3600, 5000)] == names[:2]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "a/../b",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        "a\\b",
        "x" * 256,
        "a/\ud800",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(Invalid):
        resolve_inside(tmp_path, name)


def test_a_symbolic_link_does_not_lead_out(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "real").mkdir(parents=True)
    outside.mkdir()
    (root / "way").symlink_to(outside)
    (root / "file").symlink_to(outside / "target")
    (root / "alias").symlink_to(root / "real")

    for name in ("way/x", "way/deep/x", "file"):
        with pytest.raises(Invalid, match="symbolic link"):
            resolve_inside(root, name)

    assert resolve_inside(root, ".gitignore") == root / ".gitignore"
    assert resolve_inside(root, "real/new/x") == root / "real/new/x"
    assert resolve_inside(root, "alias/x").parent.resolve() == root / "real"


def test_a_file_in_the_way_of_a_directory_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises((Invalid, Unavailable), match="a"):
        ensure_dir(tmp_path / "a" / "b")
    with pytest.raises(Invalid, match="not a directory"):
        ensure_dir(tmp_path / "a")


_PRINT_TAG = "from flightlog.store.files import process_tag; print(process_tag())"


def test_files_made_in_a_hurry_are_whole_at_once_and_synced_together(tmp_path):
    paths = [tmp_path / "deep" / f"{number}.json" for number in range(40)]

    made = [create_file(path, str(path).encode(), durable=False) for path in paths]
    again = create_file(paths[0], b"other", durable=False)
    sync_files(paths)
    sync_files([])

    assert all(made)
    assert not again
    assert [path.read_bytes() for path in paths] == [str(path).encode() for path in paths]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted(
        path.name for path in paths
    )
    with pytest.raises(FileNotFoundError):
        sync_files([tmp_path / "gone"])


def test_without_proc_a_process_is_known_by_its_start(tmp_path):
    proc = tmp_path / "no-proc"
    child = subprocess.Popen(["sleep", "60"])
    try:
        name = process_name(child.pid, proc)
        pid, started, boot = name.split("-")

        assert is_running(name, proc)
        assert abs(int(started) - time.time()) < 60
        assert not is_running(f"{pid}-{int(started) - 3600}-{boot}", proc)  # the pid was reused
    finally:
        child.kill()
        child.wait()
    assert not is_running(name, proc)
    assert process_name(child.pid, proc) == f"{child.pid}-0-0"
