"""The command line: one small file a verb, and what they share."""
