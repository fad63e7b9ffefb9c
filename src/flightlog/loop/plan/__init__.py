"""Plans: schema, parser and condition language."""
