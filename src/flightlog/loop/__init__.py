"""The loop: a plan carried out unattended, every decision on record, resumed after any crash.

`plan` reads what is to be done, `core` decides (pure), `run` does it (the one impure part),
`layout` shows it as the source document's files, `look` tells what it was like, `simulate`
runs the very same core under a clock, processes and faults that are made up.
"""
