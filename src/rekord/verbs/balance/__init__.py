"""`rk.balance`: how many records each class gets, and where new ones come from."""
