"""`rk.check` and its rules."""
