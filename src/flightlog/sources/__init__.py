"""What the readers of all agents share: the protocol, workers, hook logs, chat exports."""
