"""`flightlog lab`, also installed as `harness`."""

import click

from flightlog.cli.lab.compare import compare, lint
from flightlog.cli.lab.experiment import experiment
from flightlog.cli.lab.inspect import inspect, list_runs
from flightlog.cli.lab.replay import branch_points, replay
from flightlog.cli.lab.resample import resample, resample_edit, resample_session
from flightlog.cli.lab.run import collect, run, track


@click.group(epilog="Example: flightlog lab run experiment.yaml")
def lab() -> None:
    """Experiment on recorded sessions."""


for _command in (
    run, list_runs, inspect, compare, collect, lint, replay, branch_points, resample, resample_edit,
    resample_session, track, experiment,
):  # fmt: skip
    lab.add_command(_command)
