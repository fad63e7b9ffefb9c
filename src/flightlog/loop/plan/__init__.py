"""What is to be done: the plan's schema, its reader, its expressions."""

from flightlog.loop.plan.load import digest, load, parse
from flightlog.loop.plan.schema import Config, Plan, Task

__all__ = ["Config", "Plan", "Task", "digest", "load", "parse"]
