"""The whole at once for a long time: agents recording, loops, replays, the page open, random kills."""
