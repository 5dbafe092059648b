"""`python -m ninfer_tools`, the same as the console script."""

from ninfer_tools.cli import main

main()
