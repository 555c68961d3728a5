"""`rk.diff`: what changed between two datasets."""
