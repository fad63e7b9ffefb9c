"""flightlog: the flight recorder and test lab for coding agents."""

__version__ = "0.1.0"
