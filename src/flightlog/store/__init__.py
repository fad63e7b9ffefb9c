"""Where it is: the only package that writes files."""
