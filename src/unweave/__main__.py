"""`python -m unweave` is the command `unweave`."""

from unweave.cli import main

main()
