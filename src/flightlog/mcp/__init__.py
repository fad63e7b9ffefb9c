"""`flightlog mcp`: recorded sessions as tools that a coding agent can call."""
