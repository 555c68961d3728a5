"""`rk.rewrite`: copies and changes of datasets."""
