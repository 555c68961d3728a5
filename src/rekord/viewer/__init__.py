"""Records in the browser: a server on this machine and its page."""
