"""Usage reports: cold, after growth, unchanged; against ccusage and tokscale, totals against the manifest."""

import json
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from tools.bench.corpus import CLASSES, grow
from tools.bench.measure import Contender, Result, clear, parse_report, plain_env, race
from tools.bench.peers import Peer
from tools.bench.table import Table

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.model.usage import Breakdown
from flightlog.usage.pipeline import UsagePipeline

GROWTH_BYTES = 5_000_000
OURS = {"flightlog table": ("--by", "day"), "flightlog json": ("--json",)}


class Ground:
    """A corpus and the homes of those who report on it."""

    def __init__(self, corpus: Path, work: Path, installed: dict[str, Peer], program: Path) -> None:
        """Give every contender an empty home that leads to `corpus`."""
        self.corpus, self.work, self.peers, self.program = corpus, work, installed, program
        for name in ("ours", "peers"):
            (work / name).mkdir(parents=True, exist_ok=True)
        link = work / "peers" / ".claude"
        link.unlink(missing_ok=True)
        link.symlink_to(corpus)
        self.index = work / "ours" / "data"
        self.cache = work / "peers" / ".config" / "tokscale" / "cache"

    def ours(self, *, cold: bool) -> list[Contender]:
        """`flightlog session usage` as a table and as JSON, each with a data directory of its own."""
        return [self._ours(name, options, cold=cold) for name, options in OURS.items()]

    def _ours(self, name: str, options: Sequence[str], *, cold: bool) -> Contender:
        data = self.index / name.rsplit(maxsplit=1)[-1]
        env = plain_env(
            CLAUDE_CONFIG_DIR=str(self.corpus),
            FLIGHTLOG_HOME=str(data),
            HOME=str(self.work / "ours"),
        )
        command = [str(self.program), "session", "usage", *options]
        return Contender(name, command, env, clear(data) if cold else _nothing)

    def ccusage(self, kind: str) -> list[Contender]:
        """`ccusage KIND`; it keeps nothing between two runs."""
        program = self.peers["ccusage"].program
        env = plain_env(HOME=str(self.work / "peers"))
        command = [str(program), kind, "--json", "--offline"]
        return [Contender(f"ccusage {kind}", command, env)] if program else []

    def tokscale(self, *, cold: bool) -> list[Contender]:
        """`tokscale models`, with its cache or without."""
        program = self.peers["tokscale"].program
        env = plain_env(HOME=str(self.work / "peers"), TOKSCALE_PRICING_CACHE_ONLY="1")
        command = [str(program), "models", "--json", "--no-spinner", "--client", "claude"]
        name = "tokscale, no cache" if cold else "tokscale, cached"
        return (
            [Contender(name, command, env, clear(self.cache) if cold else _nothing)]
            if program
            else []
        )


def cold(ground: Ground, table: Table, rounds: int) -> None:
    """A first report."""
    results = race([*ground.ours(cold=True), *_peers(ground, cold=True)], rounds)
    _check(results["flightlog json"], ground.corpus, table)
    size = sum(file.stat().st_size for file in ground.corpus.rglob("*.jsonl")) // 1_000_000
    bar = (2.0, 3.0) if size >= 900 else (1.0, 0.0)
    table.results(f"cold usage report, {size:,} MB", results)
    _compare(table, results, "ccusage", bar[0])
    _compare(table, results, "tokscale", bar[1])
    table.most("  peak memory, MB", max(results[name].rss_mb for name in OURS), 250)


def again(ground: Ground, table: Table, rounds: int) -> None:
    """The same report when nothing changed, and after 5 MB more."""
    contenders = [*ground.ours(cold=False), *_peers(ground, cold=False)]
    race(contenders, 1)
    results = race(contenders, rounds)
    table.results("unchanged", results)
    table.most("  lines decoded", _count_decoded(ground), 0)
    _compare(table, results, "tokscale", 4.0)
    _compare(table, results, "ccusage", 0.0)
    seed = 100

    def step() -> None:
        nonlocal seed
        seed += 1
        grow(ground.corpus, GROWTH_BYTES, seed)

    # One growth a round, before the first contender, so that each finds 5 MB more than it knows.
    results = race([contenders[0]._replace(before=step), *contenders[1:]], rounds)
    _check(race(ground.ours(cold=False), 1)["flightlog json"], ground.corpus, table)
    table.results("after 5 MB more", results)
    step()
    table.note("  lines decoded", _count_decoded(ground))
    _compare(table, results, "tokscale", 5.0)
    _compare(table, results, "ccusage", 12.0)


def _count_decoded(ground: Ground) -> int:
    """Count the lines one more report decodes."""
    pipeline = UsagePipeline(
        find_transcripts(str(ground.corpus)).files, next((ground.index / "json").glob("index*.db"))
    )
    pipeline.report(Breakdown.DAY, UTC)
    pipeline.save()
    return pipeline.stats.decoded


def _compare(table: Table, results: dict[str, Result], peer: str, bar: float) -> None:
    """Hold both of our reports to one bar against the fastest of a peer's; end and CPU are for information."""
    theirs = [results[name] for name in results if name.startswith(peer)]
    for name in OURS if theirs else ():
        ours = results[name]
        table.ratio(
            f"  {name}, against {peer}",
            min(result.printed_s for result in theirs) / ours.printed_s,
            bar,
        )
        table.ratio(
            f"  {name} to its end, against {peer}",
            min(result.wall_s for result in theirs) / ours.wall_s,
            0,
        )
        table.ratio(
            f"  {name} CPU, against {peer}", min(result.cpu_s for result in theirs) / ours.cpu_s, 0
        )


def _peers(ground: Ground, *, cold: bool) -> list[Contender]:
    return [*ground.ccusage("daily"), *ground.ccusage("session"), *ground.tokscale(cold=cold)]


def _check(ours: Result, corpus: Path, table: Table) -> None:
    """Hold a report by day against what was truly used."""
    manifest = json.loads((corpus / "manifest.json").read_text())
    report: Any = parse_report(ours)
    days = {row["day"]: _tokens(row) for row in report["rows"]}
    truth = {day: _tokens(row) for day, row in manifest["by_day"].items()}
    table.truth("  totals equal the manifest, each day", days == truth)
    table.truth(
        "  responses equal the manifest", report["total"]["responses"] == manifest["responses"]
    )


def _tokens(row: dict[str, int]) -> tuple[int, ...]:
    return tuple(row[name] for name in CLASSES)


def _nothing() -> None:
    pass
