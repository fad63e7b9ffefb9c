"""Rename classes, functions and methods by tables.

    python -m tools.restructure.rename --check TABLE...     plan only; build/restructure/report.txt says all
    python -m tools.restructure.rename [--skip-clashes] TABLE...
    python -m tools.restructure.rename --inverse COMMIT build/restructure/inverse.tsv

The last form proves the rename: it undoes it in memory and compares with COMMIT. Needs `pip install jedi`.
"""

import argparse
import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

from .guess import Guesser
from .inverse import compare_trees
from .outside import (
    apply_edits,
    find_mentions,
    find_names_as_data,
    plan_breaks,
    plan_commands,
    plan_project,
    plan_templates,
)
from .plan import Plan, Planner
from .resolve import Program
from .source import load_sources
from .table import Row, read_tables
from .texts import TextPlanner
from .typed import build_index

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "restructure"


def main() -> int:
    """Plan, report, and unless --check write the renamed tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path, help="TSV files: kind, old, new, meaning")
    parser.add_argument("--check", action="store_true", help="print statistics and write the report only")
    parser.add_argument("--skip-clashes", action="store_true", help="leave out rows that clash instead of stopping")
    parser.add_argument("--inverse", metavar="COMMIT", help="apply the inverse table in memory, compare with COMMIT")
    given = parser.parse_args()
    rows, unusable = read_tables(given.tables)
    plan, texts = make_plan(ROOT, rows)
    plan.skipped = [*plan.skipped, *unusable]
    write_report(plan)
    print_statistics(plan, len(rows))
    if given.inverse:
        renamed = {path: apply_edits(text, plan.edits.get(path, {})) for path, text in texts.items()}
        return compare_trees(ROOT, given.inverse, renamed)
    if given.check:
        return 1 if plan.clashes else 0
    if plan.clashes and not given.skip_clashes:
        print("nothing written: there are clashes (--skip-clashes leaves those rows out)")
        return 1
    write_tree(plan, texts)
    return 0


def make_plan(root: Path, rows: list[Row]) -> tuple[Plan, dict[str, str]]:
    """Return the plan and the text of every file it may change."""
    sources = load_sources(root)
    index = build_index(root, sources, OUT)
    program = Program(sources)
    planner = Planner(program, index, Guesser(root, index))
    plan = planner.make(rows)
    TextPlanner(planner, plan).run()
    texts = {str(source.path): source.text for source in sources}
    texts |= plan_templates(planner, plan, root) | plan_project(planner, plan, root)
    plan_commands(planner, plan)
    plan_breaks(planner, plan)
    plan.as_data = find_names_as_data(planner, plan)
    plan.mentions = find_mentions(plan, root)
    plan.applied = _applied(planner, plan)
    return plan, texts


def _applied(planner: Planner, plan: Plan) -> list[tuple[str, str, str]]:
    """Return every definition that gets a new name: kind, old and new qualified name in today's modules."""
    done = []
    for (module, name), new in plan.symbols.items():
        done.append(("class" if name.lstrip("_")[:1].isupper() else "function", f"{module}.{name}", f"{module}.{new}"))
    for (key, name), new in plan.members.items():
        facts = planner.index.classes[key]
        owner = facts.name.removeprefix(f"{facts.module}.")
        parts = owner.split(".")
        parts[0] = plan.symbols.get((facts.module, parts[0]), parts[0])
        done.append(("method", f"{facts.name}.{name}", f"{facts.module}.{'.'.join(parts)}.{new}"))
    return done


def print_statistics(plan: Plan, total: int) -> None:
    edits = sum(map(len, plan.edits.values()))
    print(f"{total} rows; {len(plan.symbols)} module names and {len(plan.members)} members renamed")
    print(f"{edits} edits in {sum(1 for each in plan.edits.values() if each)} files")
    print(f"{len(plan.clashes)} clashes, {len(plan.skipped)} rows skipped:")
    for reason, count in Counter(_short(reason) for _, reason in plan.skipped).most_common():
        print(f"  {count:5} {reason}")
    print(f"{len(plan.review)} places to review, {len(plan.guessed)} without a type; see {OUT / 'report.txt'}")


def _short(reason: str) -> str:
    head = reason.partition(";")[0].partition(", which")[0]
    return " ".join(word for word in head.split() if "." not in word)


def write_report(plan: Plan) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    parts = {
        "CLASHES (not renamed; choose another name or rename the local first)": [
            f"{row.old} -> {row.new} ({row.origin}): {reason}" for row, reason in plan.clashes
        ],
        "REVIEW BY HAND (not renamed)": plan.review,
        "RENAMED WITHOUT A TYPE (look once)": plan.guessed,
        "RENAMED ALONG (same family) AND COMMANDS": plan.notes,
        "CLASS AND FUNCTION NAMES AS DATA": plan.as_data,
        "DOCUMENTS (not changed)": plan.mentions,
        "ROWS SKIPPED": [f"{row}: {reason}" for row, reason in plan.skipped if not row.startswith("rule ")],
    }
    lines = []
    for title, items in parts.items():
        lines += [f"== {title}: {len(items)}", *dict.fromkeys(items), ""]
    (OUT / "report.txt").write_text("\n".join(lines), encoding="utf-8")
    table = ["kind\told\tnew\tmeaning", *("\t".join((*row, "")) for row in plan.applied)]
    (OUT / "applied.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
    table = ["kind\told\tnew\tmeaning", *(f"{kind}\t{new}\t{old}\t" for kind, old, new in plan.applied)]
    (OUT / "inverse.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")


def write_tree(plan: Plan, texts: dict[str, str]) -> None:
    """Write the changed files, then sort imports and format as `make check` wants it."""
    changed = {path: apply_edits(texts[path], edits) for path, edits in plan.edits.items() if edits}
    for path, text in changed.items():
        if path.endswith(".py"):
            ast.parse(text, path)
    for path, text in changed.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    python = sorted(path for path in changed if path.endswith(".py"))
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    subprocess.run([*ruff, "check", "-q", "--select", "I001,RUF022", "--fix", *python], cwd=ROOT, check=False)
    subprocess.run([*ruff, "format", "-q", *python], cwd=ROOT, check=False)
    print(f"{len(changed)} files written")


if __name__ == "__main__":
    sys.exit(main())
