"""`python -m flightlog.agents.scripted SCENARIO`: serve one scenario until stdin closes."""

import sys
from pathlib import Path

from flightlog.agents.scripted.scenario import load_scenario
from flightlog.agents.scripted.server import serve_scenario


def main(arguments: list[str]) -> int:
    """Print the address, then serve until the caller closes stdin; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m flightlog.agents.scripted SCENARIO.yaml\n")
        return 2
    with serve_scenario(load_scenario(Path(arguments[0]))) as model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
