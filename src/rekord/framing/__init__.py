"""Record files on disk: compression, frames, and files of other formats."""
