"""The live room: who is running, what it costs, what is wrong."""
