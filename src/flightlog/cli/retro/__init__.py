"""`flightlog retro` and `flightlog issue`."""
