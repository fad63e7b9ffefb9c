"""Plans carried out on real files: summary before delete, whole or not at all, killed anywhere."""

from pathlib import Path

from flightlog.model.retention import RetentionAction, RetentionItem, RetentionMove
from flightlog.store.directories import carry_out_moves
from support.strace_points import kill_everywhere


def move(name, deed=RetentionAction.DELETE, *, target="", summary=""):
    return RetentionMove(RetentionItem(name, "log", 0), deed, 400, target, summary)


def no_summary(name, moves, before):
    raise AssertionError("nobody asked for one")


def tell(name, moves, before):
    names = set((before or b"").decode().split()) | {change.item.name for change in moves}
    return "\n".join(sorted(names)).encode() + b"\n"


def tree(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_files_and_directories_are_archived_or_deleted_and_the_rest_stays(tmp_path):
    put(tmp_path, "s1/log.json", "s1/deep/x", "s2/log.json", "s3/log.json")
    moves = [move("s1"), move("s2", RetentionAction.ARCHIVE, target="archive/s2")]

    outcome = carry_out_moves(tmp_path, moves, no_summary)

    assert outcome.completed == tuple(moves)
    assert tree(tmp_path) == ["archive/s2/log.json", "s3/log.json"]


def test_a_summary_that_fails_keeps_all_it_would_have_summarized(tmp_path):
    put(tmp_path, "a", "b")

    outcome = carry_out_moves(
        tmp_path, [move("a", summary="sum.md"), move("b", summary="../sum.md")], tell
    )

    assert tree(tmp_path) == ["b", "sum.md"]
    assert (tmp_path / "sum.md").read_text() == "a\n"
    assert [(left.item.name, why.startswith("no summary")) for left, why in outcome.failed] == [
        ("b", True)
    ]


def test_an_empty_summary_is_no_summary(tmp_path):
    put(tmp_path, "a")

    outcome = carry_out_moves(tmp_path, [move("a", summary="sum.md")], lambda *_: b" \n")

    assert tree(tmp_path) == ["a"]
    assert len(outcome.failed) == 1


def test_nothing_outside_the_root_is_touched(tmp_path):
    put(tmp_path, "root/x", "precious/y")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "precious")

    outcome = carry_out_moves(
        tmp_path / "root", [move("link"), move("link/y"), move("../precious")], no_summary
    )

    assert outcome.completed == ()
    assert (tmp_path / "precious" / "y").exists()


def test_an_archive_is_never_overwritten(tmp_path):
    put(tmp_path, "a", "archive/a")

    outcome = carry_out_moves(
        tmp_path, [move("a", RetentionAction.ARCHIVE, target="archive/a")], no_summary
    )

    assert "already" in outcome.failed[0][1]
    assert tree(tmp_path) == ["a", "archive/a"]


def test_a_file_that_is_gone_already_is_reported(tmp_path):
    outcome = carry_out_moves(tmp_path, [move("nobody")], no_summary)

    assert outcome.failed[0][1] == "it is gone already"


SCENARIO = """
sys.path[:0] = ["{source}", "{tests}"]
from flightlog.store.directories import carry_out_moves
from store.test_retention import move, tell
from flightlog.model.retention import RetentionAction
begin()
carry_out_moves(root, [move("s1", summary="sum.md"), move("s2", RetentionAction.ARCHIVE, target="archive/s2")], tell)
end()
"""


def test_a_kill_removes_nothing_without_a_summary_and_can_be_resumed(tmp_path):
    here = Path(__file__).parents[1]
    scenario = SCENARIO.format(source=here.parent / "src", tests=here)

    def check(root, _):
        whole = [name for name in tree(root) if not Path(name).name.startswith(".")]
        if "s1/log.json" not in whole:
            assert (root / "sum.md").read_text() == "s1\n"
        assert ("s2/log.json" in whole) != ("archive/s2/log.json" in whole)
        left = [name for name in ("s1",) if (root / name).exists()]
        moves = [move(name, summary="sum.md") for name in left]
        if (root / "s2").exists():
            moves.append(move("s2", RetentionAction.ARCHIVE, target="archive/s2"))
        carry_out_moves(root, moves, tell)
        remaining = [name for name in tree(root) if not name.endswith(".tmp")]
        assert remaining == ["archive/s2/log.json", "sum.md"]

    named = kill_everywhere(
        scenario, tmp_path, lambda root: put(root, "s1/log.json", "s1/x", "s2/log.json"), check
    )
    assert len(named) > 15
