"""Run the sessions of an experiment, in order or in parallel, within a budget."""
