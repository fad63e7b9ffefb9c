"""Artifacts: the analysis as one page that works offline."""
