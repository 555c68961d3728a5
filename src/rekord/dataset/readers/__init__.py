"""Readers: records of shards to decoded batches, in file order or by number."""
