"""Finding what is secret or personal in text: rules as data, views, and one linear-time engine."""
