"""The exit statuses that all commands have in common (pure)."""

from typing import Final

STATUS_FAILED: Final = 1  # something was not done; with several names, the others were
STATUS_MISUSED: Final = 2  # the command or the configuration is wrong, or an answer such as --yes is missing
STATUS_INTERRUPTED: Final = 130  # as a shell has it for a program that SIGINT ended
