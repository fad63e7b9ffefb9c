"""The loop: carry out a plan unattended, record every decision, resume after any crash.

`plan` parses plans, `decide` chooses the next effect (pure), `runner` carries it out, `layout`,
`logs` and `report` render the source document's files, `simulator` runs the same decisions with
a simulated clock, simulated processes and faults.
"""
