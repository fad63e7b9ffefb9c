"""The index among several connections of one process: SQLite's locks must stand for as long as it has them."""

import sqlite3
import subprocess
import sys

from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.files import VALUES_SCHEMA, iter_values, store_values

# The bytes SQLite locks while a connection may read; whoever gets them all to itself clears the log away.
TAKE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except OSError: print("held")
    else: print("free")
"""


def who_holds(path):
    """Ask as another process would."""
    return subprocess.run(
        [sys.executable, "-c", TAKE, str(path)], capture_output=True, text=True, check=True
    ).stdout


def test_a_second_connection_leaves_the_locks_of_the_first(tmp_path):
    path = tmp_path / "index.db"
    first = Index(path, FILES)
    first.database.execute("SELECT count(*) FROM files").fetchone()
    assert who_holds(path) == "held\n"

    second = Index(path, FILES)
    answer = who_holds(path)
    second.close()

    assert answer == "held\n"
    assert who_holds(path) == "held\n"
    first.close()
    assert who_holds(path) == "free\n"


def test_a_row_of_a_damaged_file_is_damage(tmp_path):
    path = tmp_path / "index.db"
    index = Index(path)
    index.database.execute("CREATE TABLE odd(name TEXT)")
    index.database.execute("INSERT INTO odd VALUES (NULL)")
    # What damage does to a page: a value that the table does not allow.
    index.database.execute("PRAGMA writable_schema = ON")
    index.database.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE odd(name TEXT NOT NULL)' WHERE name = 'odd'"
    )
    index.close()
    damaged = Index(path)

    def question(database: sqlite3.Connection) -> list[str]:
        there = database.execute(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'odd'"
        ).fetchone()[0]
        return (
            sorted([*(row[0] for row in database.execute("SELECT name FROM odd")), "a"])
            if there
            else ["new"]
        )

    assert damaged.query(question) == ["new"]
    damaged.close()


def test_a_mistake_of_the_asker_throws_no_sound_index_away(tmp_path):
    path = tmp_path / "index.db"
    index = Index(path, FILES)
    index.query(lambda database: database.execute("SELECT count(*) FROM files").fetchone())
    before = path.stat().st_ino

    try:
        index.query(lambda _: [].index("not there"))
    except ValueError as error:
        message = str(error)

    assert "not in list" in message
    assert path.stat().st_ino == before
    index.close()


def test_a_level_creates_its_tables_beside_those_of_another(tmp_path):
    path = tmp_path / "index.db"
    first = Index(path, FILES)
    first.query(lambda database: database.execute("INSERT INTO files(level, path) VALUES (1, 'x')"))
    first.close()

    second = Index(path, FILES, VALUES_SCHEMA)
    second.query(lambda database: store_values(database, "kind", [("s", 1, b"x")]))
    count = second.query(lambda database: database.execute("SELECT count(*) FROM files").fetchone())
    second.close()

    assert count == (1,)


OPENING = """
import sys
from flightlog.store.index.database import Index
from flightlog.store.index.files import VALUES_SCHEMA, store_values
sys.stdin.read(1)
index = Index(sys.argv[1], VALUES_SCHEMA)
index.query(lambda database: store_values(database, "kind", [(sys.argv[2], 1, b"x")]))
index.close()
"""


def test_processes_that_open_an_index_at_once_do_not_throw_it_away(tmp_path):
    """Each writes one row; the file that is there in the end is the one all of them wrote to."""
    for round_ in range(6):
        path = tmp_path / str(round_) / "index.db"
        begun = [
            subprocess.Popen(
                [sys.executable, "-c", OPENING, str(path), str(number)], stdin=subprocess.PIPE
            )
            for number in range(6)
        ]
        for child in begun:
            child.stdin.write(b"x")
            child.stdin.close()
        assert [child.wait(60) for child in begun] == [0] * 6
        index = Index(path, VALUES_SCHEMA)
        assert len(index.query(lambda database: list(iter_values(database, "kind")))) == 6
        index.close()
