"""The lab group, also installed as `harness`; each family of verbs is in a file of its own."""

import click

from flightlog.cli.lab_branch import branch_points
from flightlog.cli.lab_collect import collect
from flightlog.cli.lab_compare import compare
from flightlog.cli.lab_lint import lint
from flightlog.cli.lab_look import inspect, list_runs
from flightlog.cli.lab_replay import replay
from flightlog.cli.lab_resample import resample, resample_edit, resample_session
from flightlog.cli.lab_run import run
from flightlog.cli.lab_track import track


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
