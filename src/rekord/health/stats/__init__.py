"""Statistics of a dataset's features, gathered in one pass over its files."""
