"""Other packages' calls, on smelt."""
