"""The command line: one small module per verb, and what they share."""
