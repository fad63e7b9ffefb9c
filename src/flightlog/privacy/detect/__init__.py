"""Find secrets and personal data in text: rules as data, decodings, and one linear-time engine."""
