"""Experiments: tasks, arms and attempts in one file, scored and compared."""
