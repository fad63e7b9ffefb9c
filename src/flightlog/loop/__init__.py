"""The loop room: a plan carried out unattended."""
