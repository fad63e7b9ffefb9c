"""What was worked out is not worked out again, until a file changes."""

import sqlite3

from flightlog.archive.session_values import SessionValueCache
from flightlog.model.session import SessionFile


def files(size):
    return (SessionFile("/x/s.jsonl", "s", size, 1),)


class Counting:
    """Works out a value and counts how often."""

    def __init__(self):
        self.asked = []

    def __call__(self, session):
        self.asked.append(session)
        return {"about": session}


def test_an_unchanged_session_is_worked_out_once(tmp_path):
    make = Counting()
    for _ in range(3):
        catalogue = SessionValueCache("facts", dict[str, str], tmp_path / "index.db")
        assert list(catalogue.iter_values({"s": files(1), "t": files(2)}, make)) == [
            {"about": "s"},
            {"about": "t"},
        ]
        assert catalogue.get_or_compute("s", files(1), make) == {"about": "s"}
        catalogue.close()

    assert make.asked == ["s", "t"]


def test_a_changed_session_is_worked_out_again_and_the_others_are_not(tmp_path):
    make = Counting()
    catalogue = SessionValueCache("facts", dict[str, str], tmp_path / "index.db")
    list(catalogue.iter_values({"s": files(1), "t": files(2)}, make))

    list(catalogue.iter_values({"s": files(9), "t": files(2)}, make))

    assert make.asked == ["s", "t", "s"]


def test_many_sessions_are_kept_as_they_are_worked_out(tmp_path):
    make = Counting()
    sessions = {f"s{number}": files(number) for number in range(200)}
    first = SessionValueCache("facts", dict[str, str], tmp_path / "index.db")
    wanted = zip(range(150), first.iter_values(sessions, make), strict=False)
    assert len(list(wanted)) == 150
    first.close()

    list(
        SessionValueCache("facts", dict[str, str], tmp_path / "index.db").iter_values(
            sessions, make
        )
    )

    assert len(make.asked) < 250


def test_a_value_of_another_shape_is_computed_again(tmp_path):
    make = Counting()
    SessionValueCache("facts", list[int], tmp_path / "index.db").get_or_compute(
        "s", files(1), lambda _: [1]
    )

    assert SessionValueCache("facts", dict[str, str], tmp_path / "index.db").get_or_compute(
        "s", files(1), make
    ) == {"about": "s"}


def test_broken_index_costs_time_and_no_answer(tmp_path):
    (tmp_path / "index.db").write_bytes(b"not a database" * 100)

    catalogue = SessionValueCache("facts", dict[str, str], tmp_path / "index.db")

    assert catalogue.get_or_compute("s", files(1), Counting()) == {"about": "s"}
    catalogue.close()
    assert sqlite3.connect(tmp_path / "index.db").execute(
        "SELECT count(*) FROM session_values"
    ).fetchone() == (1,)


def test_an_index_that_another_process_holds_is_left_alone(tmp_path):
    path = tmp_path / "index.db"
    SessionValueCache("facts", dict[str, str], path).get_or_compute("s", files(1), Counting())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    answer = SessionValueCache("facts", dict[str, str], path).get_or_compute(
        "t", files(1), Counting()
    )

    other.execute("COMMIT")
    assert answer == {"about": "t"}
    assert other.execute("SELECT session FROM session_values").fetchall() == [("s",)]
