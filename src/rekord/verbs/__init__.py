"""The verbs as functions: `rk.write` and others."""
