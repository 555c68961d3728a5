"""SQL over the records of splits, with DuckDB."""
