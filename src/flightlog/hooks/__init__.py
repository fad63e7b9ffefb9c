"""The hook an agent runs at each event: `record.py` is what settings point to.

These files are run as plain scripts by `python -I -S` and may not import the package: each
module they load costs the agent a millisecond. Settings call them behind a shell guard
(`app.install.command`) that turns a missing Python, a missing file or a crash into exit 0.
"""
