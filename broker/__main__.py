"""`python -m barnabas.broker` is the command `barnabas`."""

from barnabas.broker.cli import main

main()
