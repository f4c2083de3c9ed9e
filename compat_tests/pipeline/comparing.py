"""Compares an archive with its topics, and looks for duplicates. A program for the environment that has Spark.

`python -m compat_tests.pipeline.comparing ARCHIVE BOOTSTRAP` compares every record of the archive with the one at its
offset in the topic of the same name, which still has everything from offset 0 on, and prints a JSON line a partition.
"""

import json
from dataclasses import asdict

import click

from barnabas.pipeline.manifest import Archive
from barnabas.pipeline.plan import PartitionPlan, Plan, Selection, records_of
from barnabas.pipeline.session import open_session
from barnabas.pipeline.topics import Cluster
from barnabas.pipeline.verifying import verify


@click.command()
@click.argument("path")
@click.argument("bootstrap")
def compare(path: str, bootstrap: str) -> None:
    archive, cluster = Archive(path), Cluster(bootstrap)
    counts = records_of(archive.batches(), archive.topics())
    ends = cluster.end_offsets(counts)
    # As a plan: what the topic holds is what the archive was to be restored to, from offset 0 on.
    partitions = tuple(PartitionPlan(topic, number, topic, 0, ends[topic, number]) for topic, number in counts)
    plan = Plan("", len(archive.batches()), {}, partitions)
    spark = open_session("comparing")
    for found in verify(spark, archive, plan, Selection(), bootstrap):
        click.echo(json.dumps(asdict(found)))
    spark.stop()


if __name__ == "__main__":
    compare()
