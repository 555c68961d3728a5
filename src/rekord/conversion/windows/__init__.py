"""Windows of time series, as a source of a conversion."""
