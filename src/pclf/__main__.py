"""`python -m pclf` is `pclf`."""

from pclf.cli import main

main()
