"""What clusters add to `known`: scenarios that do not run on them, and differences that only they show."""

from compat_tests.differential.compare import Known

ABOUT_ONE_BROKER: dict[str, str] = {}

KNOWN_DIFFERENCES_OF_CLUSTERS: list[Known] = []
