"""`python -m barnabas.pipeline` is `barnabas pipeline`, also where the package is not installed."""

from barnabas.pipeline.cli import pipeline

pipeline(prog_name="barnabas pipeline")
