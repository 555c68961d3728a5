"""What `rk.export` writes: a module for each kind of target, and what they share."""
