"""The door to recordings: rooms and faces reach them through here."""
