"""The viewer: records of a dataset in the browser."""
