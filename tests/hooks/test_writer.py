"""The hook's appends and those of `store.jsonl` are the same, byte for byte, fault for fault."""

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.hooks import writer
from flightlog.store import jsonl

records = st.binary(max_size=30).map(lambda text: b'{"x":"' + text.hex().encode() + b'"}')


def by_hook(path, line, *, durable=False):
    writer.append_line(str(path), line, durable=durable)


@given(
    left=st.sampled_from([b"", b"{}\n", b'{"torn', b"\n", b"{}\n{"]),
    written=st.lists(records, min_size=1, max_size=4),
)
def test_hook_and_store_repair_any_leftover_to_the_same_file(tmp_path_factory, left, written):
    folder = tmp_path_factory.mktemp("both")
    for name, append in (("ours", by_hook), ("theirs", jsonl.append_line)):
        (folder / name).write_bytes(left)
        for line in written:
            append(folder / name, line, durable=True)

    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


def test_hook_and_store_undo_a_write_that_did_not_fit(tmp_path):
    import resource

    for name, append in (("ours", by_hook), ("theirs", jsonl.append_line)):
        path = tmp_path / name
        append(path, b"{}")
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            try:
                append(path, b'{"pad":"' + b"x" * 200 + b'"}')
            except Exception:  # noqa: BLE001 - the child only tries
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes() == b"{}\n"


def test_a_record_of_the_hook_and_its_shards_are_read_by_the_store(tmp_path):
    path = tmp_path / "hooks.jsonl"
    by_hook(path, b'{"n":1}')
    with path.open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        by_hook(path, b'{"n":2}')

    assert [line.data for line in jsonl.read_together(path)] == [b'{"n":1}', b'{"n":2}']
    assert len(jsonl.list_shards(path)) == 1


def test_hook_and_store_wait_for_the_same_lock(tmp_path):
    path = tmp_path / "hooks.jsonl"
    pids = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            for at in range(40):
                append = by_hook if number % 2 else jsonl.append_line
                append(path, b'{"n":%d}' % (number * 100 + at))
            os._exit(0)
        pids.append(child)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8

    seen = [line.data for line in jsonl.read_together(path)]
    assert len(seen) == len(set(seen)) == 320


@pytest.mark.parametrize("obstacle", ["directory", "link"])
def test_hook_and_store_refuse_a_path_that_is_no_file(tmp_path, obstacle):
    path = tmp_path / "hooks.jsonl"
    if obstacle == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")

    for append in (by_hook, jsonl.append_line):
        with pytest.raises(Exception, match=r"cannot write|directory|symbolic"):
            append(path, b"{}")
    assert not Path(tmp_path / "elsewhere").exists()
