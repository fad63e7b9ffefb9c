"""Exports read by the programs they are for; counts and sums are the archive's."""

import csv
import json
import os
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import duckdb
import pytest

from flightlog.dataset.exports import count_redactions, export_dataset
from flightlog.dataset.extract.commits import judgment_rows
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.sync import sync_dataset
from flightlog.dataset.layout import write_shard
from flightlog.dataset.stats import token_counts
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.usage import Breakdown
from flightlog.views.session.timeline import all_steps
from support.dataset_ground import turn
from support.recordings import CASES, config_dir

SESSION = "13a84f73-1111-4111-8111-111111111111"


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Every session real agents wrote, as rows of one repository."""
    from support.dataset_ground import Ground

    ground = Ground(tmp_path_factory.mktemp("exports")).on()
    ground.config = config_dir(
        ground.root / "config", *[case for case in CASES if case.startswith("2.1.325/")]
    )
    kit = ground.kit()
    sync_dataset(kit, kit.archive.recordings.values())
    return ground, kit.archive


def test_rows_are_as_many_as_the_archive_tells_and_tokens_are_its_sum(everything):
    ground, archive = everything
    sessions = list(archive.iter_sessions())
    usage = archive.usage_report(Breakdown.SESSION, UTC).total.usage

    calls = [
        (session.id, call.id)
        for session in sessions
        for step in all_steps(session)
        for call in step.tool_calls
    ]
    assert ground.book.count_rows()["session"] == sum(
        bool(session.turns or session.subagents) for session in sessions
    )
    assert ground.book.count_rows()["chat"] == sum(len(session.turns) for session in sessions)
    assert ground.book.count_rows()["action"] == len(set(calls))
    assert token_counts(ground.book) == {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": usage.cache_write_1h_tokens,
    }


def test_duckdb_reads_the_parquet_by_agent_and_day(everything, tmp_path):
    ground, archive = everything
    made = export_dataset(ground.book, "parquet", tmp_path / "rows")
    usage = archive.usage_report(Breakdown.SESSION, UTC).total.usage

    def run_query(question):
        return duckdb.sql(question).fetchall()

    files = f"read_parquet('{tmp_path}/rows/chats/*/*/*.parquet', hive_partitioning=true)"
    assert run_query(f"select count(*), count(distinct id || uuid) from {files}") == [
        (made["chats"],) * 2
    ]
    assert run_query(f"select distinct agent from {files}") == [("claude-code",)]
    responses = f"read_parquet('{tmp_path}/rows/responses/*/*/*.parquet', hive_partitioning=true)"
    sums = run_query(
        f"select sum(input_tokens), sum(output_tokens), sum(cache_read_tokens) from {responses}"
    )
    assert sums == [(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)]


def test_hugging_face_datasets_loads_the_folder(everything, tmp_path):
    ground, _ = everything
    made = export_dataset(ground.book, "huggingface", tmp_path / "rows")
    program = """
import datasets, json, sys
datasets.disable_progress_bars()
told = {}
for name in ("chats", "sessions", "actions", "commits", "orchestration", "responses"):
    told[name] = datasets.load_dataset(sys.argv[1], name, split="train").num_rows
told["first"] = datasets.load_dataset(sys.argv[1], split="train")[0]["words"]
print(json.dumps(told))
"""
    home = {
        "HOME": str(tmp_path),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "PATH": os.environ["PATH"],
    }
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path / "rows")], env=home, capture_output=True,
                         check=False, timeout=120)  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    loaded = json.loads(ran.stdout)
    assert {name: loaded[name] for name in made} == made
    assert loaded["first"] == "redacted"
    assert (
        json.loads((tmp_path / "rows" / "redaction_report.json").read_text())["chats"]
        == made["chats"]
    )


def test_a_table_without_rows_is_not_offered_to_hugging_face(ground, tmp_path):
    ground.on().write(SESSION, *turn(1))
    kit = ground.kit()
    sync_dataset(kit, kit.archive.recordings.values())
    stale = tmp_path / "rows" / "data" / "orchestration-00000-of-00001.parquet"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier export")

    made = export_dataset(ground.book, "huggingface", tmp_path / "rows")

    offered = (tmp_path / "rows" / "README.md").read_text().split("---")[1]
    assert (made["orchestration"], "orchestration" in offered, "chats" in offered) == (
        0,
        False,
        True,
    )
    assert sorted(path.name.split("-")[0] for path in stale.parent.iterdir()) == sorted(
        k for k, n in made.items() if n
    )


def test_unwritable_directory_is_reported_with_a_next_step(ground, tmp_path):
    with pytest.raises(Invalid, match="jsonl needs a file") as refused:
        export_dataset(ground.book, "jsonl", tmp_path)
    assert refused.value.hint == f"--output {tmp_path / 'rows.jsonl'}"
    with pytest.raises(Unavailable, match="cannot write"):
        export_dataset(ground.book, "jsonl", Path("/proc/rows.jsonl"))


def test_csv_and_jsonl_hold_every_row(everything, tmp_path):
    ground, _ = everything
    made = export_dataset(ground.book, "csv", tmp_path / "csv")
    lines = export_dataset(ground.book, "jsonl", tmp_path / "rows.jsonl")

    with (tmp_path / "csv" / "chats.csv").open(newline="") as file:
        assert (
            len(list(csv.DictReader(file))) == made["chats.csv"] == ground.book.count_rows()["chat"]
        )
    read = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(read) == lines["rows.jsonl"] == sum(ground.book.count_rows().values())


def write_answers(ground, *answers):
    for number, (prompt, answer) in enumerate(answers, 1):
        session = SESSION.replace("13a84f73", f"{number:08x}")
        ground.on().write(session, *turn(number, prompt, answer))
    kit = ground.kit()
    sync_dataset(kit, kit.archive.recordings.values())


def rate(ground, output, rating):
    row = next(row for row in ground.rows("chat") if row["output"] == output)
    rows = judgment_rows(f"chat:{row['id']}:{row['uuid']}", {"feedback": rating}, 9)
    rated = values_of(permitted_rows(rows, ground.kit().redactor, words=True))
    write_shard(ground.place, "judged", rated, 3, ground.kit().redactor)


def test_examples_omit_answers_rated_bad_and_pairs_prefer_the_others(ground, tmp_path):
    write_answers(ground, ("Sort it.", "quickly"), ("Sort it.", "badly"), ("Else.", "fine"))
    rate(ground, "badly", {"rating": "bad"})

    export_dataset(ground.book, "sft", tmp_path / "sft.jsonl")
    export_dataset(ground.book, "preferences", tmp_path / "pairs.jsonl")

    dialogs = [
        json.loads(line)["messages"] for line in (tmp_path / "sft.jsonl").read_text().splitlines()
    ]
    assert sorted(dialog[1]["content"] for dialog in dialogs) == ["fine", "quickly"]
    (pair,) = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert (pair["prompt"], pair["chosen"], pair["rejected"]) == ("Sort it.", "quickly", "badly")


def test_export_of_rows_without_words_is_refused_with_the_reason(ground, tmp_path):
    ground.on().write(SESSION, *turn(1))
    kit = ground.kit(words=False)
    sync_dataset(kit, kit.archive.recordings.values())

    with pytest.raises(Invalid, match="1 chat without words"):
        export_dataset(ground.book, "sft", tmp_path / "x")
    assert count_redactions(ground.book)["chats_without_words"] == 1


def test_an_unknown_form_is_refused(ground, tmp_path):
    with pytest.raises(Invalid, match="no such format"):
        export_dataset(ground.book, "xml", tmp_path / "x")
