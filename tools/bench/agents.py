"""Usage of five agents in one report: cold, after growth, unchanged; what the peers count beside it.

The corpus repeats recorded sessions with new ids and longer tool output. Its truth is the usage that
the scripted model sent when they were recorded.
"""

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench.corpus import CLASSES, generate
from tools.bench.measure import Contender, Result, clear, parse_report, plain_env, race
from tools.bench.peers import peers
from tools.bench.table import Table
from tools.bench.words import Words

from flightlog.model.usage import Usage

ROOT = Path(".bench").absolute()
RECORDINGS = Path(__file__).parents[2] / "tests" / "recordings"
BYTES = 200_000_000
GROWTH_BYTES = 5_000_000
ROUNDS = 3
TURNS = 60  # how often a session repeats what was recorded; a long day's work
# Ids of sessions, messages, responses and calls, as the recorded clients write them.
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:ses|msg|prt|resp|chatcmpl|call|req|rs|fc)[_-][0-9A-Za-z]{6,}"
)
_FILLER_BYTES = 6_000  # at most, in a line; the output of a command or a file that was read


class RecordedAgent(NamedTuple):
    """An agent, the case of its recordings that is repeated, and its directory below home."""

    name: str
    case: str
    home: str
    head: int  # the lines that a session has once


AGENTS = (
    RecordedAgent("codex", "0.166.0/multi-turn-tools", ".codex", 1),
    RecordedAgent("gemini", "0.61.0/multi-turn-tools", ".gemini", 1),
    RecordedAgent("qwen", "0.24.4/tools-cached-reasoning", ".qwen", 0),
    RecordedAgent("copilot", "1.0.102/multi-turn-tools", ".copilot", 1),
)


def main() -> int:
    """Measure, print, fail when a bar is missed."""
    table = Table()
    home = ROOT / "agents-home"
    shutil.rmtree(home, ignore_errors=True)
    truth = _make_home(home)
    program = Path(sys.executable).with_name("flightlog")
    installed = peers(ROOT / "peers")
    contenders = [
        *_ours(program, home, cold=True),
        *_theirs(installed["ccusage"].program, installed["tokscale"].program, home, cold=True),
    ]
    _compare_cases(table, program, {name: peer.program for name, peer in installed.items()})
    table.title(f"{len(truth)} agents, {BYTES // 1_000_000} MB")
    cold = race(contenders, ROUNDS)
    _compare_counts(table, cold, truth)
    table.results("cold", cold)
    _compare(table, cold, 0.5)
    warm = [
        *_ours(program, home, cold=False),
        *_theirs(installed["ccusage"].program, installed["tokscale"].program, home, cold=False),
    ]
    race(warm, 1)
    same = race(warm, ROUNDS)
    table.results("unchanged", same)
    _compare(table, same, 4.0)
    turn = iter(range(1, 100))
    grown = race([warm[0]._replace(before=lambda: _grow(home, next(turn))), *warm[1:]], ROUNDS)
    table.results("after 5 MB more", grown)
    _compare(table, grown, 5.0)
    return 1 if table.failed else 0


def _make_home(home: Path) -> dict[str, Usage]:
    """Write sessions of every agent and return what each used."""
    share = BYTES // (len(AGENTS) + 1)
    manifest = generate(home / ".claude", share)
    total: Any = manifest["total"]
    truth = {"claude-code": Usage(*total.values())}
    for agent in AGENTS:
        truth[agent.name] = sum(_write_sessions(home, agent, share, 0), Usage())
    return truth


def _grow(home: Path, number: int) -> None:
    """Add sessions of every agent, and so what its files say."""
    for agent in AGENTS:
        list(_write_sessions(home, agent, GROWTH_BYTES // len(AGENTS), number))


def _write_sessions(home: Path, agent: RecordedAgent, size: int, seed: int) -> Iterator[Usage]:
    """Write about `size` bytes of sessions; yield the usage of each."""
    case = RECORDINGS / agent.name / agent.case
    draw, words = random.Random(f"{agent.name}:{seed}"), Words(seed)
    filler = [words.cut(draw, _FILLER_BYTES) for _ in range(20)]
    used = _client_recordings().wire_usage(f"{agent.name}/{agent.case}")
    (source,) = (case / "session").rglob("*.jsonl")
    inside = str(source.relative_to(case / "session"))
    records = [json.loads(line) for line in source.read_bytes().splitlines()]
    own = {match[0] for match in _ID.finditer(inside + json.dumps(records[0]))}
    written = number = 0
    while written < size:
        name = f"{seed}.{number}"
        path = home / agent.home / _rename_path(inside, own, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        turns = draw.randint(1, TURNS)
        with path.open("w") as file:
            for turn in range(turns):
                for record in records[agent.head if turn else 0 :]:
                    text = json.dumps(_lengthen(record, draw, filler))
                    file.write(_rename(text, own, name, f"{name}.{turn}") + "\n")
        written += path.stat().st_size
        number += 1
        for _ in range(turns):
            yield used


def _rename(text: str, own: set[str], session: str, turn: str) -> str:
    """Return `text` with new ids: those of the session the same in all of its turns."""

    def new_id(match: re.Match[str]) -> str:
        digest = hashlib.md5(
            f"{match[0]}{session if match[0] in own else turn}".encode(), usedforsecurity=False
        ).hexdigest()
        if "-" in match[0] and match[0][8:9] == "-":
            return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"
        mark = re.split(r"[_-]", match[0])[0]
        return f"{mark}{match[0][len(mark)]}{digest[:24]}"

    return _ID.sub(new_id, text)


def _rename_path(inside: str, own: set[str], session: str) -> str:
    """Return the path of a session; some clients write only the beginning of its id."""
    path = _rename(inside, own, session, session)
    for name in own:
        path = path.replace(name[:8], _rename(name, own, session, session)[:8])
    return path


def _lengthen(record: Any, draw: random.Random, filler: list[str]) -> Any:
    """Return a record whose longest text, such as the output of a command, is as long as in life."""
    if not isinstance(record, dict) or "usage" in json.dumps(record).lower():
        return record
    extra = draw.choice(filler)[: draw.randint(0, _FILLER_BYTES)]
    words = (text for text in _iter_texts(record) if " " in text)  # no id
    longest = max(words, key=len, default="")
    if len(longest) < 20:
        return record
    text = json.dumps(record)
    return json.loads(text.replace(json.dumps(longest)[:-1], json.dumps(longest + extra)[:-1], 1))


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(item)


def _ours(program: Path, home: Path, *, cold: bool) -> list[Contender]:
    data = ROOT / "agents-data"
    env = plain_env(HOME=str(home), FLIGHTLOG_HOME=str(data))
    before = clear(data) if cold else _do_nothing
    command = [str(program), "session", "usage", "--by", "agent", "--json"]
    return [Contender("flightlog", command, env, before)]


def _theirs(
    ccusage: Path | None, tokscale: Path | None, home: Path, *, cold: bool
) -> list[Contender]:
    contenders = []
    if ccusage is not None:
        command = [str(ccusage), "daily", "--json", "--offline"]
        contenders.append(Contender("ccusage", command, plain_env(HOME=str(home))))
    if tokscale is not None:
        env = plain_env(HOME=str(home), TOKSCALE_PRICING_CACHE_ONLY="1")
        clients = "claude,codex,gemini,qwen,copilot,opencode"
        command = [str(tokscale), "models", "--json", "--no-spinner", "--client", clients]
        before = clear(home / ".config" / "tokscale" / "cache") if cold else _do_nothing
        contenders.append(Contender("tokscale", command, env, before))
    return contenders


def _compare(table: Table, results: dict[str, Result], bar: float) -> None:
    theirs = [results[name] for name in ("ccusage", "tokscale") if name in results]
    if theirs:
        fastest = min(result.printed_s for result in theirs)
        table.ratio("  against the faster peer", fastest / results["flightlog"].printed_s, bar)


def _compare_counts(table: Table, results: dict[str, Result], truth: dict[str, Usage]) -> None:
    """Hold our counts to what the model sent; show what the peers count."""
    report: Any = parse_report(results["flightlog"])
    counted = {row["agent"]: row for row in report["rows"]}
    for agent, usage in truth.items():
        row = counted.get(agent, {})
        ours = (row.get("input_tokens"), row.get("output_tokens"), row.get("cache_read_tokens"))
        expected = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        table.truth(f"  {agent}: tokens as the model sent them", ours == expected)
    table.note("  sent, all agents", f"{sum(usage.total_tokens for usage in truth.values()):,}")
    if "ccusage" in results:
        days: Any = parse_report(results["ccusage"])
        table.note("  ccusage counts", f"{days.get('totals', {}).get('totalTokens', 0):,}")
    if "tokscale" in results:
        models: Any = parse_report(results["tokscale"])
        entries = models.get("entries", models.get("models", []))
        total = sum(
            value
            for entry in entries
            for key, value in entry.items()
            if key in {"input", "output", "cacheRead", "cacheWrite"} and isinstance(value, int)
        )
        table.note("  tokscale counts", f"{total:,}")


def _client_recordings() -> Any:
    """Return the tests' own module that reads recordings."""
    sys.path.insert(0, str(RECORDINGS.parent))
    from support import client_recordings  # type: ignore[import-not-found]  # noqa: PLC0415 - of the tests

    return client_recordings


def _compare_cases(table: Table, program: Path, programs: dict[str, Path | None]) -> None:
    """Print what was sent, what we count and what each peer counts, for every recorded case."""
    recorded = _client_recordings()
    table.title("tokens of each recorded case: sent | ours | ccusage | tokscale | agentsview")
    cases = sorted(path.parent for path in RECORDINGS.glob("*/*/*/wire.jsonl"))
    for case in (str(path.relative_to(RECORDINGS)) for path in cases):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(recorded.lay_out_home(Path(folder) / "home", case))
            total = _run_json(_ours(program, home, cold=True)[0])["total"]
            ours = sum(total[key] for key in CLASSES[:4])
            theirs = [
                _sum_tokens(_run_json(contender))
                for contender in _theirs(programs["ccusage"], programs["tokscale"], home, cold=True)
            ]
            agentsview = _count_with_agentsview(programs["agentsview"], home)
            figures = (recorded.wire_usage(case).total_tokens, ours, *theirs, agentsview)
        table.note(f"  {case}", " | ".join(f"{figure:,}" for figure in figures))


def _run_json(contender: Contender) -> Any:
    contender.before()
    done = subprocess.run(
        contender.command, env=contender.env, capture_output=True, text=True, check=False
    )
    start = done.stdout.find("{")
    return json.loads(done.stdout[start:]) if start >= 0 else {}


def _sum_tokens(report: Any) -> int:
    """Return the tokens of a peer's report, whatever it calls its rows."""
    if "totals" in report:
        names = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")
        return sum((report["totals"] or {}).get(name, 0) for name in names)
    names = ("input", "output", "cacheRead", "cacheWrite")
    return sum(entry.get(name, 0) for entry in report.get("entries", ()) for name in names)


def _count_with_agentsview(program: Path | None, home: Path) -> int:
    if program is None:
        return 0
    env = plain_env(HOME=str(home), AGENTSVIEW_NO_DAEMON="1")
    subprocess.run([str(program), "sync"], env=env, capture_output=True, check=False)
    command = [str(program), "usage", "daily", "--all", "--json", "--offline"]
    return _sum_tokens(_run_json(Contender("agentsview", command, env)))


def _do_nothing() -> None:
    """Leave everything as it is."""


if __name__ == "__main__":
    sys.exit(main())
