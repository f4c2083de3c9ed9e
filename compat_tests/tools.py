"""Third-party programs that a test needs: without one it is skipped; in continuous integration it fails."""

import os
import shutil

import pytest


def require_tool(*names: str) -> None:
    """Skip the test (with `CI` set: fail it) unless each of these programs is on the path."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        give_up(f"{', '.join(missing)} not found on the path")


def give_up(reason: str) -> None:
    """The test cannot run here: skip it with its reason, and fail it in continuous integration."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
