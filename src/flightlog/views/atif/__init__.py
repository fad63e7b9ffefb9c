"""The Agent Trajectory Interchange Format (ATIF): read, write and lint documents."""
