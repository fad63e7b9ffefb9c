"""The lab group, also installed as `harness`; each family of verbs is in a file of its own."""

import click

from flightlog.cli.lab.compare import compare, lint
from flightlog.cli.lab.inspect import inspect, list_runs
from flightlog.cli.lab.replay import branch_points, replay
from flightlog.cli.lab.resample import resample, resample_edit, resample_session
from flightlog.cli.lab.run import collect, run, track


@click.group(epilog="Example: flightlog lab run experiment.yaml")
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, samples."""


for _verb in (
    run,
    list_runs,
    inspect,
    compare,
    collect,
    lint,
    replay,
    branch_points,
    resample,
    resample_edit,
    resample_session,
    track,
):
    lab.add_command(_verb)
