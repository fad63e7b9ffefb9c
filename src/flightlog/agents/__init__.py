"""How driven: one driver per agent."""
