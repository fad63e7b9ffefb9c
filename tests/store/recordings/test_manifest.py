"""Manifests: which damage is found, what is repaired, and how much is read for it."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.model.errors import Unreadable
from flightlog.store.recordings.adoption import list_damaged_sessions, session_dir
from flightlog.store.recordings.manifest import BLOCK_BYTES, META, read_meta
from flightlog.store.recordings.recording import open_recording
from flightlog.store.recordings.sessions import (
    adopt_session,
    read_faults,
    seal_session,
    verify_sample,
    verify_session,
)
from support.strace_points import kill_everywhere

AGENT = "claude-code"
LINES = b"".join(
    b'{"n":%d,"text":"%s"}\n' % (number, os.urandom(40).hex().encode()) for number in range(9000)
)


def make(top, session="s1", *, sealed=True, body=LINES):
    """Archive one session with a rewritten transcript, a tool result and hook events; return its directory."""
    source = top / f"{session}.jsonl"
    root = session_dir(top / "home", AGENT, session)
    for text in (b'{"old":1}\n' * 100, body):
        source.write_bytes(text)
        adopt_session(top / "home", AGENT, session, {"transcript.jsonl": source})
    if sealed:
        seal_session(top / "home", AGENT, session)
    (top / "result.txt").write_bytes(b"result")
    (root / "hooks.jsonl").write_bytes(b'{"event":"Stop"}\n' * 20)
    adopt_session(top / "home", AGENT, session, sources(top, session))
    return root


def sources(top, session="s1"):
    return {"transcript.jsonl": top / f"{session}.jsonl", "tool-results/r.txt": top / "result.txt"}


def verify(top, given_sources=None, session="s1"):
    return verify_session(top / "home", AGENT, session, given_sources or {})


def list_unrepaired(faults):
    return [fault for fault in faults if not fault.repair]


def delete_sources(top):
    (top / "s1.jsonl").unlink()
    (top / "result.txt").unlink()


def test_a_sound_session_has_no_faults_sealed_or_not(tmp_path):
    for name in ("sealed", "live"):
        (tmp_path / name).mkdir()
        make(tmp_path / name, sealed=name == "sealed")

        assert verify(tmp_path / name) == []
        assert verify_sample(tmp_path / name / "home", AGENT) == []


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    top = tmp_path_factory.mktemp("archive")
    make(top)
    (top / "agent").mkdir()
    for path in sources(top).values():
        path.rename(top / "agent" / path.name)
    return top


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_single_corruption_is_reported_or_repaired(archive, tmp_path_factory, data):
    top = tmp_path_factory.mktemp("harmed") / "top"
    shutil.copytree(archive, top)
    has_sources = data.draw(st.booleans(), label="sources")
    root = session_dir(top / "home", AGENT, "s1")
    stored = sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    path = data.draw(st.sampled_from(stored), label="file")
    before = path.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1), label="at")
    kinds = ["delete", "truncate", "flip"] + ([] if path.name == "hooks.jsonl" else ["append"])
    harm(path, before, data.draw(st.sampled_from(kinds), label="harm"), at)

    faults = verify(top, sources(top / "agent") if has_sources else None)

    assert faults, "the corruption was not noticed"
    if not list_unrepaired(faults):
        assert verify(top) == []
        with open_recording(root / "transcript.g2.jsonl") as copy:
            assert copy.read(0, copy.size) == LINES
    shutil.rmtree(top)


def harm(path, before, how, at):
    if how == "delete":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(before[:at])
    elif how == "append":
        path.write_bytes(before + b"{}\n")
    else:
        path.write_bytes(before[:at] + bytes([before[at] ^ 0x10]) + before[at + 1 :])


def test_a_flipped_byte_is_restored_from_the_source_and_set_aside(tmp_path):
    root = make(tmp_path)
    (path,) = root.glob("transcript.g2.jsonl*")
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 1
    path.write_bytes(damaged)

    (fault,) = verify(tmp_path, sources(tmp_path))

    assert (fault.session, fault.file, fault.kind) == ("s1", "transcript.g2.jsonl", "changed")
    assert fault.repair == f"restored from {tmp_path / 's1.jsonl'}"
    assert (root / "transcript.g2.jsonl").read_bytes() == LINES
    assert (root / f"{path.name}.damaged-1").read_bytes() == damaged
    assert verify(tmp_path) == []
    assert seal_session(tmp_path / "home", AGENT, "s1")
    assert verify(tmp_path) == []


def test_a_damaged_seek_table_is_repaired_without_the_source(tmp_path):
    root = make(tmp_path)
    delete_sources(tmp_path)
    (path,) = root.glob("transcript.g2.jsonl*")
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")

    (fault,) = verify(tmp_path)

    assert fault.repair == "restored from its own sound bytes"
    assert (root / "transcript.g2.jsonl").read_bytes() == LINES


VERIFY = """
from flightlog.store.recordings.sessions import verify_session
begin()
verify_session(root / "home", "claude-code", "s1", {})
end()
"""


def test_dying_while_a_file_is_restored_loses_none_of_its_bytes(tmp_path):
    def prepare(top):
        (path,) = make(top, body=LINES[:40_000]).glob("transcript.g2.jsonl*")
        delete_sources(top)
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")

    def check(top, _):
        assert list_unrepaired(verify(top)) == []
        assert verify(top) == []
        with open_recording(session_dir(top / "home", AGENT, "s1") / "transcript.g2.jsonl") as copy:
            assert copy.read(0, copy.size) == LINES[:40_000]

    assert len(kill_everywhere(VERIFY, tmp_path, prepare, check, every=4)) > 10


@pytest.mark.parametrize("harmed", [b"", b'{"v":', b"[]"])
def test_a_damaged_manifest_is_noticed_until_it_can_be_made_again(tmp_path, harmed):
    root = make(tmp_path)
    delete_sources(tmp_path)
    (root / META).write_bytes(harmed)
    with pytest.raises(Unreadable):
        read_meta(root)

    assert {fault.kind for fault in list_unrepaired(verify(tmp_path))} == {"unrecorded"}
    assert list_unrepaired(verify(tmp_path))
    accepted = verify_session(tmp_path / "home", AGENT, "s1", {}, accept=True)

    assert list_unrepaired(accepted) == []
    assert verify(tmp_path) == []


def test_settling_hashes_what_is_new_and_one_block(tmp_path):
    make(tmp_path, sealed=False)
    with (tmp_path / "s1.jsonl").open("ab") as file:
        file.write(b'{"n":1}\n')

    grown = adopt_session(tmp_path / "home", AGENT, "s1", sources(tmp_path))
    again = adopt_session(tmp_path / "home", AGENT, "s1", sources(tmp_path))

    assert 8 <= grown.bytes_hashed <= BLOCK_BYTES + 8
    assert again.bytes_hashed == 0


def test_a_damaged_end_of_a_copy_is_not_taken_into_the_manifest(tmp_path):
    root = make(tmp_path, sealed=False)
    path = root / "transcript.g2.jsonl"
    path.write_bytes(path.read_bytes()[:-9] + b"z" + path.read_bytes()[-8:])
    with (tmp_path / "s1.jsonl").open("ab") as file:
        file.write(b'{"n":1}\n')

    adopt_session(tmp_path / "home", AGENT, "s1", sources(tmp_path))

    (fault,) = verify(tmp_path, sources(tmp_path))
    assert (fault.file, fault.kind) == ("transcript.g2.jsonl", "changed")
    assert fault.repair


def test_samples_together_see_the_whole_archive(tmp_path):
    for session in ("s1", "s2", "s3"):
        root = make(tmp_path, session)
    (path,) = root.glob("transcript.g2.jsonl*")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    blocks = 3 * (len(LINES) // BLOCK_BYTES + 4)

    seen = [verify_sample(tmp_path / "home", AGENT, BLOCK_BYTES, 60) for _ in range(blocks)]

    assert {fault.session for faults in seen for fault in faults} == {"s3"}
    assert list_damaged_sessions(tmp_path / "home", AGENT) == {"s3"}
    assert {fault.kind for fault in read_faults(tmp_path / "home", AGENT)} == {"truncated"}
    assert list_unrepaired(verify(tmp_path, sources(tmp_path, "s3"), "s3")) == []
    assert list_damaged_sessions(tmp_path / "home", AGENT) == set()
