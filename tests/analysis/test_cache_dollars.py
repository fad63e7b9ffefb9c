"""What misses cost, counted a second time from the raw records: nothing of `analysis` is used."""

import json
import shutil
from collections import Counter

import pytest

from support import cache_cases
from support.captures import capture_case, count_anew
from support.cli_runs import within
from support.recordings import CASES, config_dir

# Dollars per million tokens: read from the cache, written for 5 minutes, written for 1 hour.
FIGURES = {
    "claude-opus-5-5": (0.2, 5.0, 8.0),
    "claude-sonnet-5-5": (0.1, 2.5, 4.0),
    "claude-haiku-5-5": (0.01, 0.125, 0.2),
    "claude-sonnet-4-6": (0.3, 3.75, 6.0),
    "claude-sonnet-4-5-20250929": (0.3, 3.75, 6.0),
    "claude-sonnet-4-20250514": (0.3, 3.75, 6.0),
}
WRITTEN = [(0, 20_000), (20_000, 500), (0, 20_600), (9_000, 11_900), (20_900, 40)]


def count_session(transcript):
    """The misses of a session, the tokens written again and their dollars above a hit's."""
    sums = Counter()
    folder = transcript.with_suffix("") / "subagents"
    for path in (transcript, *folder.rglob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        sums.update(count_thread(records, is_main=path == transcript))
    return sums


def count_thread(records, *, is_main):
    sent = {record["id"] for record in records if record["type"] == "api-request"}
    before, is_compacted, has_cached, seen, sums = 0, False, False, set(), Counter()
    for record in records:
        is_compacted |= record.get("subtype") == "compact_boundary"
        message = record.get("message") or {}
        is_copied = bool(sent) and record.get("requestRef") not in sent
        if record["type"] != "assistant" or message["id"] in seen or is_copied:
            continue
        if is_main and record.get("isSidechain"):
            continue
        seen.add(message["id"])
        usage = message["usage"]
        read, write = (
            usage.get("cache_read_input_tokens", 0),
            usage.get("cache_creation_input_tokens", 0),
        )
        prompt = usage["input_tokens"] + read + write
        if not prompt:
            continue
        expected = min(before, prompt)
        is_low = read < 0.95 * expected and expected - read >= 2_000
        if is_low and has_cached and not is_compacted:
            hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens", 0)
            cheap, short, long = FIGURES[message["model"]]
            paid = (write - hour) * short + hour * long
            sums.update(misses=1, tokens=write, dollars=(paid - write * cheap) / 1e6)
        before, is_compacted, has_cached = prompt, False, has_cached or bool(read or write)
    return sums


def check_equal(config):
    """Hold every session below `config` against the command; return the misses of all."""
    misses = 0
    for path in sorted(config.glob("projects/*/*.jsonl")):
        if path.name.startswith("agent-"):
            continue
        counted = count_session(path)
        totals = json.loads(within(config, "cache", path.stem, "--json").out)["totals"]
        assert totals["misses"] == counted["misses"], path
        assert totals["recached_tokens"] == counted["tokens"]
        assert totals["extra_cost_usd"] == pytest.approx(counted["dollars"], abs=1e-12)
        misses += counted["misses"]
    return misses


@pytest.mark.parametrize("case", cache_cases.CASES)
def test_dollars_of_a_recorded_case_are_counted_twice_alike(case, tmp_path):
    shutil.copytree(cache_cases.ROOT / case / "projects", tmp_path / "projects")
    verdicts = Counter(one["verdict"] for one in cache_cases.read_case(case)["requests"])

    assert check_equal(tmp_path) == verdicts["miss"] + verdicts["partial"]


@pytest.mark.parametrize("version", ["1.0.128", "2.0.76", "2.1.100", "2.1.325"])
def test_dollars_of_captured_sessions_are_counted_twice_alike(version, tmp_path):
    config = capture_case(tmp_path, f"{version}/multi-turn-tools")
    for path in config.glob("projects/*/*.jsonl"):
        records = map(json.loads, path.read_text().splitlines())
        names = dict.fromkeys(one["message"]["id"] for one in records if one["type"] == "assistant")
        count_anew(config, dict(zip(names, WRITTEN, strict=False)))

    assert check_equal(config) == 6


def test_dollars_of_ordinary_recordings_are_counted_twice_alike(tmp_path):
    recent = [case for case in CASES if case.startswith("2.1.325/")]

    assert check_equal(config_dir(tmp_path, *recent)) == 2
