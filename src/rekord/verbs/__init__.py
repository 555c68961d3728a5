"""What a person asks for, as functions: `rk.write` and those that follow it."""
