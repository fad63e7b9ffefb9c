"""The hook and the status line that an agent runs; its settings name `record.py` and `status.py`.

They run as plain scripts by `python -I -S` and may not import the rest of the package: each
module they load costs the agent a millisecond. Settings call them behind a shell guard that
turns a missing Python, a missing file or a crash into exit 0.
"""
