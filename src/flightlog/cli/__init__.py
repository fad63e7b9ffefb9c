"""Entry points of the command line. Each imports the root command only when it runs."""

import sys


def main() -> None:
    """Run `flightlog`."""
    from flightlog.cli.main import cli, run_command

    sys.exit(run_command(cli, "flightlog", sys.argv[1:]))


def ralph_runtime() -> None:
    """Run the loop under its source document's name."""
    _run_alias("loop", "ralph-runtime")


def harness() -> None:
    """Run the lab under its source document's name."""
    _run_alias("lab", "harness")


def chat_retro() -> None:
    """Run retro under its source document's name."""
    _run_alias("retro", "chat-retro")


def issue_workflow() -> None:
    """Run the issue workflow under its source document's name."""
    _run_alias("issue", "issue-workflow")


def ml_data_collector() -> None:
    """Run the dataset under its source document's name."""
    _run_alias("dataset", "ml-data-collector")


def _run_alias(noun: str, name: str) -> None:
    from flightlog.cli.main import run_alias

    sys.exit(run_alias(noun, name, sys.argv[1:]))
