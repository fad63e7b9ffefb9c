"""The pure core: fold events into a state and decide the next effect. No clock, no files."""
