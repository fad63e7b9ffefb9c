"""The slow tests in one table: how long each took and how it ended; exit code 1 when one failed or none ran."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def rows(report: Path) -> list[tuple[str, float, str]]:
    """Name, seconds and end of each test, the longest first."""
    cases = []
    for case in ET.parse(report).getroot().iter("testcase"):
        ends = {child.tag for child in case}
        end = next((tag for tag in ("failure", "error", "skipped") if tag in ends), "passed")
        cases.append(
            (f"{case.get('classname')}::{case.get('name')}", float(case.get("time") or 0), end)
        )
    return sorted(cases, key=lambda row: -row[1])


def main() -> int:
    """Print the table."""
    try:
        cases = rows(Path(sys.argv[1]))
    except (OSError, ET.ParseError) as error:
        sys.stdout.write(f"no report: {error}\n")
        return 1
    for name, seconds, end in cases:
        sys.stdout.write(f"{seconds:9.1f} s  {end:8}  {name}\n")
    bad = [name for name, _, end in cases if end != "passed"]
    whole = sum(seconds for _, seconds, _ in cases)
    sys.stdout.write(f"{whole:9.1f} s  {len(cases) - len(bad)} of {len(cases)} passed\n")
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
