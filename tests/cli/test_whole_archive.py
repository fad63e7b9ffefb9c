"""Every session of the archive at once, here and on a cluster: trajectories, tables, a look for secrets."""

import json
import os

import pyarrow.parquet
import pytest

from support.cli_runs import environment, flightlog
from support.cluster import cluster
from support.recordings import CASES, config_dir
from support.transcripts import assistant, user, write

SECRET = "sk-" + "ant-" + "api03-" + "Zq9" * 31 + "-AA"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    where = config_dir(tmp_path_factory.mktemp("archive"), *CASES[:6])
    write(
        where, "22222222-2222-4222-8222-222222222222", user(f"my key is {SECRET}"), assistant("m1")
    )
    return where


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def sessions(archive):
    return json.loads(flightlog(archive, "session", "list", "--limit", "0", "--json").out)


def test_every_session_is_written_as_a_trajectory_that_is_sound(archive, tmp_path):
    out, one = tmp_path / "out", tmp_path / "one"
    ran = flightlog(archive, "session", "export", "--all", "--atif", "--output", str(out), "--json")
    listed = sessions(archive)
    flightlog(archive, "session", "export", listed[0]["session"], "--atif", "--output", str(one))

    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["sessions"] == len(listed)
    assert {path.name for path in out.iterdir()} == {session["session"] for session in listed}
    assert files(out / listed[0]["session"]) == files(one)
    assert SECRET.encode() in b"".join(files(out).values())


def test_every_session_is_rows_of_three_tables_by_agent_and_day(archive, tmp_path):
    out = tmp_path / "rows"
    ran = flightlog(
        archive,
        "session",
        "export",
        "--all",
        "--format",
        "parquet",
        "--output",
        str(out),
        "--redact",
    )
    again = flightlog(
        archive, "session", "export", "--all", "--format", "parquet", "--output", str(out)
    )
    tables = {
        name: pyarrow.parquet.read_table(out / name).to_pylist()
        for name in ("sessions", "steps", "tool_calls")
    }
    listed = {session["session"]: session for session in sessions(archive)}

    assert ran.code == 0, ran.err
    assert {session["session"] for session in tables["sessions"]} == set(listed)
    assert {session["agent"] for session in tables["sessions"]} == {"claude-code"}
    for row in tables["sessions"]:
        steps = [step for step in tables["steps"] if step["session"] == row["session"]]
        assert row["steps"] == len(steps)
        assert row["output_tokens"] == sum(step["output_tokens"] for step in steps)
        assert row["tool_calls"] == sum(
            call["session"] == row["session"] for call in tables["tool_calls"]
        )
    assert sum(row["tool_calls"] for row in tables["sessions"]) > 0
    assert again.code != 0, "rows would stand there twice"
    assert SECRET.encode() not in b"".join(files(out).values())


def test_secrets_are_found_in_every_session_and_never_shown(archive):
    ran = flightlog(archive, "privacy", "scan", "--sessions", "--secrets", "--json")

    findings = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 1
    assert [finding["session"] for finding in findings] == ["22222222-2222-4222-8222-222222222222"]
    assert SECRET not in ran.out + ran.err


def test_a_cluster_writes_the_same_files(archive, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    flightlog(archive, "session", "export", "--all", "--format", "parquet", "--output", str(here))
    env = environment(tmp_path) | {"PATH": os.environ["PATH"]}

    with cluster(tmp_path, env) as machines:
        on = ("--on", machines.address)
        ran = flightlog(
            archive,
            "session",
            "export",
            "--all",
            "--format",
            "parquet",
            "--output",
            str(there),
            *on,
        )

    assert ran.code == 0, ran.err
    assert files(there) == files(here)


def test_contradictory_export_options_are_refused(archive, tmp_path):
    for words in (("--all",), ("--format", "parquet"), ("--all", "--output", str(tmp_path / "x"))):
        assert flightlog(archive, "session", "export", *words).code == 2
