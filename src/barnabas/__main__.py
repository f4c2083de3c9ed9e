"""`python -m barnabas`: the same as the `barnabas` command."""

from barnabas.broker.cli import main

if __name__ == "__main__":
    main()
