"""The health of record files: what is wrong with them, and where."""
