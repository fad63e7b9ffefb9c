"""Bringing a directory up to date: a copy first, nothing lost wherever it dies, a later layout left alone."""

import json

import pytest

from flightlog.model.errors import Misconfigured
from flightlog.store.directories import FIRST, LayoutMigration, layout_of, migrate_layout
from support.strace_points import kill_everywhere

OLD = {"a.json": b'{"cost": 1}\n', "deep/b.json": b'{"cost": 2}\n', "other.txt": b"stays\n"}
NEW = {"a.json": b'{"usd": 1}\n', "deep/b.json": b'{"usd": 2}\n', "other.txt": b"stays\n"}


def rename_cost(body):
    return body.replace(b"cost", b"usd")


def end_with_period(body):
    return body if body.endswith(b".\n") else body + b".\n"


STEPS = (
    LayoutMigration(2, "cost is called usd", lambda root: root.rglob("*.json"), rename_cost),
    LayoutMigration(
        3, "files end with a point", lambda root: [root / "other.txt"], end_with_period
    ),
)


def write_old(root):
    for name, body in OLD.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(body)


def holds(root, names=OLD):
    return {name: (root / name).read_bytes() for name in names}


def test_every_step_is_taken_once_and_what_it_changed_is_kept(tmp_path):
    write_old(tmp_path)
    assert layout_of(tmp_path) == FIRST

    taken = migrate_layout(tmp_path, STEPS)
    again = migrate_layout(tmp_path, STEPS)

    assert [step.to for step, _ in taken] == [2, 3]
    assert again == []
    assert layout_of(tmp_path) == 3
    assert holds(tmp_path) == NEW | {"other.txt": b"stays\n.\n"}
    copy = taken[0][1]
    assert holds(copy, ("a.json", "deep/b.json")) == {
        name: OLD[name] for name in ("a.json", "deep/b.json")
    }


def test_a_step_that_changes_what_it_made_itself_is_refused(tmp_path):
    """A directory that a newer version began has no mark, and what it holds is in the new form already."""
    write_old(tmp_path)

    with pytest.raises(AssertionError, match="not idempotent"):
        migrate_layout(
            tmp_path, (LayoutMigration(2, "", STEPS[1].files, lambda body: body + b"."),)
        )

    assert holds(tmp_path) == OLD


def test_a_later_layout_or_a_broken_mark_is_refused_without_a_change(tmp_path):
    write_old(tmp_path)
    (tmp_path / "layout.json").write_text(json.dumps({"layout": 9}))
    with pytest.raises(Misconfigured, match="later flightlog"):
        migrate_layout(tmp_path, STEPS)
    for broken in ("{", "[]", '{"layout": "2"}', '{"layout": 0}'):
        (tmp_path / "layout.json").write_text(broken)
        with pytest.raises(Misconfigured, match="nothing is written"):
            migrate_layout(tmp_path, STEPS)

    assert holds(tmp_path) == OLD


def test_a_file_that_came_after_the_copy_is_left_to_a_later_step(tmp_path):
    """A step that died after its copy meets a file nobody copied: it is not changed without a copy."""
    write_old(tmp_path)

    def dies(body):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate_layout(tmp_path, (LayoutMigration(2, "", STEPS[0].files, dies),))
    (tmp_path / "c.json").write_bytes(b'{"cost": 3}\n')

    migrate_layout(tmp_path, STEPS[:1])

    assert holds(tmp_path) == NEW
    assert (tmp_path / "c.json").read_bytes() == b'{"cost": 3}\n'


MIGRATION = """
from flightlog.store.directories import LayoutMigration, migrate_layout
step = LayoutMigration(2, "", lambda root: root.rglob("*.json"), lambda body: body.replace(b"cost", b"usd"))
begin()
migrate_layout(root, (step,))
ack("done")
end()
"""


def test_killed_at_any_point_a_migration_is_taken_up_and_the_copy_is_whole(tmp_path):
    def check(root, acked):
        for name in ("a.json", "deep/b.json"):
            assert (root / name).read_bytes() in {OLD[name], NEW[name]}
        migrate_layout(root, STEPS[:1])
        assert holds(root) == NEW
        assert layout_of(root) == 2
        copy = root / "backups" / "before-layout-2"
        assert holds(copy, ("a.json", "deep/b.json")) == {
            name: OLD[name] for name in ("a.json", "deep/b.json")
        }

    assert kill_everywhere(MIGRATION, tmp_path, write_old, check)
