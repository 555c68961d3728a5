"""Where record files live: opening, finding and publishing them."""
