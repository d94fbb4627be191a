"""What every command is made of: flags, settings, output, and where bad input becomes one line."""
