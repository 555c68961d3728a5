"""Where the tasks of a conversion run."""
