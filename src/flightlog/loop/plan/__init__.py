"""What is to be done: the plan's schema, its reader, its expressions."""
