"""Datasets: the files that records live in, opened together."""
