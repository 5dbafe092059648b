"""`python -m ninfer_tools`, the same as the console script."""

from ninfer_tools.entry_point import main

main()
