"""Who may ask, how much, and what every response says to browsers."""
