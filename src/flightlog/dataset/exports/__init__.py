"""The dataset in other forms: tables, training examples, files other programs read."""
