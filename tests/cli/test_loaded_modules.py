"""Every module that `--help` and `session usage` load; the hook's are in `tests/hooks/test_record.py`.

A usage report over 100 MB takes about as long as its imports. A module that is missing here makes
each report slower: import it where it is used, or name it here and measure again (`make bench`).
"""

import subprocess
import sys

import pytest

from support.cli_runs import environment
from support.recordings import config_dir

LOADED = """
import sys
from flightlog.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, *sys.modules, file=sys.stderr)
"""

HELP = """
flightlog
flightlog.cli flightlog.cli.main
flightlog.model flightlog.model.errors flightlog.model.text
"""
USAGE = f"""{HELP}
flightlog.cli.output flightlog.cli.options flightlog.cli.session flightlog.cli.session.usage
flightlog.cli.session.show
flightlog.app flightlog.app.jobs flightlog.app.runtime flightlog.hooks flightlog.hooks.writer
flightlog.usage flightlog.usage.attribution flightlog.usage.digest flightlog.usage.index
flightlog.usage.pipeline flightlog.usage.price_table flightlog.usage.prices
flightlog.usage.reconciliation flightlog.usage.report flightlog.usage.report_json
flightlog.views flightlog.views.json_output flightlog.views.table_text
flightlog.sources flightlog.sources.foreign_json flightlog.sources.line_filter flightlog.sources.protocol
flightlog.sources.usage_rows flightlog.sources.workers
flightlog.agents flightlog.agents.recordings flightlog.agents.claude_code
flightlog.agents.claude_code.files flightlog.agents.claude_code.scan flightlog.agents.claude_code.usage
flightlog.agents.dialects flightlog.agents.dialects.anthropic_messages
flightlog.store flightlog.store.files flightlog.store.jsonl flightlog.store.locks flightlog.store.salvage
flightlog.store.recordings flightlog.store.recordings.adoption flightlog.store.recordings.reader
flightlog.store.recordings.recording
flightlog.store.index flightlog.store.index.database flightlog.store.index.files
flightlog.store.index.records
flightlog.model.addresses flightlog.model.entries flightlog.model.exchange flightlog.model.runtime
flightlog.model.session flightlog.model.usage
"""
# Modules of the standard library that take 2 ms or more and have crept in before.
SLOW = {
    *("argparse", "asyncio", "email", "hashlib", "http", "logging", "multiprocessing"),
    *("random", "subprocess", "tempfile", "zoneinfo"),
}
# Names that Python's own start-up may load before us, by how it was installed.
STARTUP = {
    "__main__",
    "__mp_main__",
    "_distutils_hack",
    "a1_coverage",
    "coverage",
    "sitecustomize",
    "usercustomize",
}


def load(config, *arguments):
    """Run a command and return what it printed and the modules it loaded."""
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        env=environment(config), capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, *modules = ran.stderr.splitlines()[-1].split()
    assert code == "0"
    return ran.stdout, set(modules)


def third_party(modules):
    names = {name.partition(".")[0] for name in modules}
    return names - sys.stdlib_module_names - STARTUP - {"flightlog"}


def ours(modules):
    return {name for name in modules if name.partition(".")[0] == "flightlog"}


def test_help_loads_exactly_these_modules(tmp_path):
    out, modules = load(config_dir(tmp_path, "2.1.325/multi-turn-tools"), "--help")

    assert "Usage: " in out
    assert ours(modules) == set(HELP.split())
    assert third_party(modules) - {"typing_extensions"} == {"click", "msgspec"}
    assert not modules & (SLOW | {"pathlib", "sqlite3"})


@pytest.mark.parametrize("options", [("--by", "day"), ("--json",)])
def test_session_usage_loads_exactly_these_modules(tmp_path, options):
    config = config_dir(tmp_path, "2.1.325/multi-turn-tools")
    load(config, "session", "usage", *options)  # the second report has an index to read

    out, modules = load(config, "session", "usage", *options)

    assert "2026" in out
    assert ours(modules) == set(USAGE.split())
    assert third_party(modules) - {"typing_extensions"} == {"click", "msgspec", "stringzilla"}
    assert not modules & SLOW
