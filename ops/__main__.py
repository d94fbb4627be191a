"""Run the `specadapt` command as `python -m ops`."""

from ops.main import main

main()
