"""`python -m tools.bench [NAMES…] [--size MB]`: measure, print, fail when a bar is missed."""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench import index as index_bench
from tools.bench import usage as usage_bench
from tools.bench import web as web_bench
from tools.bench.corpus import VERSION, generate
from tools.bench.peers import Peer, peers
from tools.bench.table import Table

ROOT = Path(".bench").absolute()
TOGETHER = ("usage", "again", "small", "index", "search", "web")
APART = (
    "watching",
    "hook",
    "statusline",
    "privacy",
    "atif",
    "proxy",
    "trees",
    "dataset",
    "loop",
    "resample",
    "retro",
    "analysis",
    "agents",
    "mcp",
)
NAMES = (*TOGETHER, *APART)


def main() -> int:
    """Run what was asked for."""
    options = _options()
    table = Table()
    table.note("Python", f"{platform.python_version()}, {platform.python_compiler()}")
    installed = peers(ROOT / "peers")
    for peer in installed.values():
        table.note(f"peer {peer.name}", peer.version)
    program = Path(sys.executable).with_name("flightlog")
    names = options.names or NAMES
    if "web" in names:
        _web(table, installed["agentsview"].program, options.sessions)
    large = (
        _ground(options.size, installed, program)
        if set(names) & {"usage", "again", "index", "search"}
        else None
    )
    if large is not None:
        _reports(names, large, table, options.rounds)
    if "small" in names:
        usage_bench.cold(_ground(100, installed, program), table, options.rounds)
    for name in APART:
        if (
            name in names
            and subprocess.run(
                [sys.executable, "-m", f"tools.bench.{name}"], check=False
            ).returncode
        ):
            table.failed.append(f"{name}: see above")
    print(f"\n{len(table.failed)} bars missed" + "".join(f"\n  {name}" for name in table.failed))
    return 1 if table.failed else 0


def _reports(names: Sequence[str], large: usage_bench.Ground, table: Table, rounds: int) -> None:
    if "usage" in names:
        usage_bench.cold(large, table, rounds)
    if "usage" in names or "again" in names:
        usage_bench.again(large, table, rounds)
    if "index" in names or "search" in names:
        index_bench.first(large, table, peer="index" in names)
    if "search" in names:
        index_bench.search(large, table)


def _ground(megabytes: int, installed: dict[str, Peer], program: Path) -> usage_bench.Ground:
    """Make the corpus once; measure on a copy, because growth changes it."""
    original = ROOT / f"corpus-{megabytes}-{VERSION}"
    if not (original / "manifest.json").exists():
        shutil.rmtree(original, ignore_errors=True)
        print(f"making {megabytes:,} MB of transcripts", flush=True)
        generate(original, megabytes * 1_000_000)
    work = ROOT / f"work-{megabytes}"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work / "corpus")
    os.sync()
    return usage_bench.Ground(work / "corpus", work, installed, program)


def _web(table: Table, program: Path | None, sessions: int) -> None:
    here = web_bench.ground(ROOT, sessions)
    ours = web_bench.pages(here, table)
    if program is not None:
        web_bench.peer(here, program, table, ours)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*NAMES, []],
        help="what to measure; all of it if nothing is named",
    )
    parser.add_argument("--size", type=int, default=1000, help="megabytes of transcripts")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions behind the pages")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
