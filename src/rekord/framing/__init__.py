"""Record files as they lie on disk: compression, frames, and what is not a record file."""
