"""`rk.salvage`: every intact record of damaged files."""
