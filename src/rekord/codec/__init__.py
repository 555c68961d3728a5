"""Between payload bytes and values."""
