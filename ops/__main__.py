"""`python -m ops`: the command, wherever its script is installed."""

from ops.main import main

main()
