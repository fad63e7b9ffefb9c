"""Exports a person downloaded: ChatGPT and Claude.ai, as zip or JSON, read as a stream."""
