"""Speech parts behind small interfaces."""
