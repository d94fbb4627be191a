"""The `specadapt` command."""
