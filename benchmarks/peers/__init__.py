"""The libraries that are compared, one module each; every one runs in a process of its own."""
