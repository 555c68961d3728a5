"""Edits of a dataset: append, delete, relabel."""
