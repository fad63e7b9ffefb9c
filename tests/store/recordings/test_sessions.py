import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.store.locks import exclusive_lock
from flightlog.store.recordings.adoption import session_dir
from flightlog.store.recordings.manifest import META, read_meta
from flightlog.store.recordings.recording import generation_path, list_generations, open_recording
from flightlog.store.recordings.sessions import adopt_session, seal_session, verify_session
from support.strace_points import fail_everywhere, kill_everywhere, points, run

ADOPT = """
from flightlog.store.recordings.sessions import adopt_session
begin()
done = adopt_session(root / "home", "claude-code", "s1", {"transcript.jsonl": root / "source.jsonl",
    "subagents/agent-1.jsonl": root / "agent.jsonl"})
for each in done.adopted: ack(f"{each.path.name}:{each.end}")
end()
"""
FIRST, MORE = b'{"n":1}\n' * 700, b'{"n":2}\n{"n":'


def read_all(path: Path) -> bytes:
    with open_recording(path) as recording:
        return recording.read(0, recording.size)


def history(dest: Path) -> list[bytes]:
    return [read_all(generation_path(dest, number)) for number in list_generations(dest)]


def test_a_whole_session_is_adopted_and_stays_when_the_agent_deletes_it(tmp_path):
    names = {
        "transcript.jsonl": b"main\n",
        "subagents/agent-1.jsonl": b"sub\n",
        "tool-results/x.txt": b"result",
    }
    sources = {name: tmp_path / "agent" / name for name in names}
    for name, body in names.items():
        sources[name].parent.mkdir(parents=True, exist_ok=True)
        sources[name].write_bytes(body)
    adopt_session(tmp_path / "home", "claude-code", "s1", sources)
    shutil.rmtree(tmp_path / "agent")

    again = adopt_session(tmp_path / "home", "claude-code", "s1", sources)

    root = session_dir(tmp_path / "home", "claude-code", "s1")
    assert again.adopted == ()
    assert {name: (root / name).read_bytes() for name in names} == names
    assert set(read_meta(root).files) == set(names)


def test_an_unchanged_session_writes_nothing(tmp_path):
    (tmp_path / "source").write_bytes(FIRST)
    adopt_session(tmp_path / "home", "claude-code", "s1", {"transcript.jsonl": tmp_path / "source"})
    meta = session_dir(tmp_path / "home", "claude-code", "s1") / META
    before = meta.stat().st_ino

    adopt_session(tmp_path / "home", "claude-code", "s1", {"transcript.jsonl": tmp_path / "source"})

    assert meta.stat().st_ino == before


def test_a_session_is_sealed_where_it_is_large_enough(tmp_path):
    (tmp_path / "source").write_bytes(FIRST * 10)
    (tmp_path / "small").write_bytes(b"small")
    sources = {"transcript.jsonl": tmp_path / "source", "tool-results/x.txt": tmp_path / "small"}
    adopt_session(tmp_path / "home", "claude-code", "s1", sources)

    made = seal_session(tmp_path / "home", "claude-code", "s1")

    assert [path.name for path in made] == ["transcript.jsonl.from-0.zst"]
    with pytest.raises(NotFound):
        seal_session(tmp_path / "home", "claude-code", "never-adopted")
    assert adopt_session(tmp_path / "home", "claude-code", "s1", sources).adopted[0].start == len(
        FIRST * 10
    )


@pytest.mark.parametrize("harm", [b"", b'{"v":', b"\xff\xfe", b"[]"])
def test_a_damaged_meta_file_is_set_aside_and_made_again(tmp_path, harm):
    (tmp_path / "source").write_bytes(FIRST)
    sources = {"transcript.jsonl": tmp_path / "source"}
    adopt_session(tmp_path / "home", "claude-code", "s1", sources)
    root = session_dir(tmp_path / "home", "claude-code", "s1")
    (root / META).write_bytes(harm)

    done = adopt_session(tmp_path / "home", "claude-code", "s1", sources)

    assert done.adopted[0].source_state.generation == 1
    assert read_meta(root).files["transcript.jsonl"].size_bytes == len(FIRST)
    assert (root / (META + ".damaged-1")).read_bytes() == harm


def test_what_is_no_plain_file_is_refused_and_the_rest_adopted(tmp_path):
    (tmp_path / "source").write_bytes(FIRST)
    (tmp_path / "link").symlink_to(tmp_path / "source")
    os.mkfifo(tmp_path / "pipe")
    sources = {
        "a.txt": tmp_path / "link",
        "b.txt": tmp_path / "pipe",
        "c.txt": tmp_path,
        "../d": tmp_path / "source",
        "transcript.jsonl": tmp_path / "source",
    }

    done = adopt_session(tmp_path / "home", "claude-code", "s1", sources)

    assert [name for name, error in done.failed if isinstance(error, Invalid)] == [
        "a.txt",
        "b.txt",
        "c.txt",
        "../d",
    ]
    assert [adopted.path.name for adopted in done.adopted] == ["transcript.jsonl"]


def test_adoption_of_a_locked_session_is_refused(tmp_path):
    root = session_dir(tmp_path, "claude-code", "s1")

    with exclusive_lock(root / ".lock", who="another"), pytest.raises(Conflict, match="another"):
        adopt_session(tmp_path, "claude-code", "s1", {})


def test_a_kill_at_any_system_call_of_an_adoption_loses_nothing(tmp_path):
    home = {"transcript.jsonl": "source.jsonl", "subagents/agent-1.jsonl": "agent.jsonl"}

    def prepare(root):
        sources = {name: root / source for name, source in home.items()}
        sources["transcript.jsonl"].write_bytes(FIRST)
        adopt_session(
            root / "home", "claude-code", "s1", {"transcript.jsonl": sources["transcript.jsonl"]}
        )
        sources["transcript.jsonl"].write_bytes(FIRST + MORE)
        sources["subagents/agent-1.jsonl"].write_bytes(FIRST * 2)

    def check(root, acked):
        directory = session_dir(root / "home", "claude-code", "s1")
        assert read_all(directory / "transcript.jsonl").startswith(FIRST)
        assert verify_session(root / "home", "claude-code", "s1", {}) == []
        adopt_session(
            root / "home",
            "claude-code",
            "s1",
            {name: root / source for name, source in home.items()},
        )
        assert history(directory / "transcript.jsonl") == [FIRST + MORE]
        assert history(directory / "subagents/agent-1.jsonl") == [FIRST * 2]
        assert set(read_meta(directory).files) == set(home)
        assert verify_session(root / "home", "claude-code", "s1", {}) == []

    assert len(kill_everywhere(ADOPT, tmp_path, prepare, check)) > 20


def test_dying_while_a_new_generation_begins_keeps_the_old_one(tmp_path):
    def prepare(root):
        (root / "source.jsonl").write_bytes(FIRST)
        adopt_session(
            root / "home", "claude-code", "s1", {"transcript.jsonl": root / "source.jsonl"}
        )
        (root / "source.jsonl").write_bytes(MORE)

    def check(root, acked):
        directory = session_dir(root / "home", "claude-code", "s1")
        assert read_all(directory / "transcript.jsonl") == FIRST
        adopt_session(
            root / "home", "claude-code", "s1", {"transcript.jsonl": root / "source.jsonl"}
        )
        assert history(directory / "transcript.jsonl") == [FIRST, MORE]

    assert len(kill_everywhere(ADOPT, tmp_path, prepare, check)) > 15


def test_a_failing_disk_costs_no_byte_already_adopted(tmp_path):
    guarded = "from flightlog.model.errors import FlightlogError\n" + ADOPT.replace(
        "done =", "try: done ="
    ).replace(
        '"agent.jsonl"})\n',
        '"agent.jsonl"})\nexcept FlightlogError as error: sys.exit(error.message)\n',
    )

    def prepare(root):
        (root / "source.jsonl").write_bytes(FIRST)
        adopt_session(
            root / "home", "claude-code", "s1", {"transcript.jsonl": root / "source.jsonl"}
        )
        (root / "source.jsonl").write_bytes(FIRST + MORE)

    def check(root, acked):
        directory = session_dir(root / "home", "claude-code", "s1")
        assert history(directory / "transcript.jsonl")[0].startswith(FIRST)
        adopt_session(
            root / "home", "claude-code", "s1", {"transcript.jsonl": root / "source.jsonl"}
        )
        assert history(directory / "transcript.jsonl")[-1] == FIRST + MORE

    assert fail_everywhere(guarded, tmp_path, ["EIO", "ENOSPC"], prepare, check) > 15


def test_a_first_copy_asks_the_file_system_to_share_blocks(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "source.jsonl").write_bytes(FIRST)

    assert "ioctl" in {call for call, _ in points(ADOPT, tmp_path / "root")}


def test_a_copy_that_shares_blocks_is_whole(tmp_path):
    code = "inject=ioctl:retval=0:when=1"  # strace says yes where this file system says no: an empty clone
    (tmp_path / "source.jsonl").write_bytes(FIRST)
    baseline = tmp_path / "baseline"
    baseline.mkdir()
    shutil.copy(tmp_path / "source.jsonl", baseline)
    ordinal = next(number for call, number in points(ADOPT, baseline) if call == "ioctl")

    done = run(
        ADOPT,
        tmp_path,
        "-o",
        os.devnull,
        "-e",
        "trace=ioctl",
        "-e",
        code.replace("when=1", f"when={ordinal}"),
    )

    assert done.stdout.split() == ["transcript.jsonl:0"]
    again = adopt_session(
        tmp_path / "home", "claude-code", "s1", {"transcript.jsonl": tmp_path / "source.jsonl"}
    )
    assert (again.adopted[0].start, again.adopted[0].end) == (0, len(FIRST))


def test_adoption_catches_up_after_a_full_disk(tmp_path):
    code = """
import sys
import tempfile
from pathlib import Path
from flightlog.store.recordings.sessions import adopt_session
from flightlog.store.recordings.recording import open_recording
top, home = Path(sys.argv[1]), Path(sys.argv[2])
(top / "source").write_bytes(b"x" * 70_000)
(home / "other").write_bytes(b"y" * 30_000)
done = adopt_session(home, "a", "s", {"t.jsonl": top / "source"})
assert "No space" in done.failed[0][1].message, done
(home / "other").unlink()
(top / "source").write_bytes(b"x" * 40_000)
done = adopt_session(home, "a", "s", {"t.jsonl": top / "source"})
with open_recording(done.adopted[0].path) as recording: assert recording.read(0, 99_999) == b"x" * 40_000
"""
    (tmp_path / "mount").mkdir()
    script = 'mount -t tmpfs -o size=64k none "$2" && exec "$3" -c "$4" "$1" "$2"'
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            str(tmp_path),
            str(tmp_path / "mount"),
            sys.executable,
            code,
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 200])
def test_a_session_id_from_outside_is_checked(tmp_path, name):
    with pytest.raises(Invalid):
        session_dir(tmp_path, "claude-code", name)
    with pytest.raises(Invalid):
        session_dir(tmp_path, name, "s1")
    assert session_dir(tmp_path, "claude-code", "s1") == tmp_path / "sessions/claude-code/s1"
