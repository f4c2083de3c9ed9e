"""The commands `barnabas pipeline audit` and `barnabas pipeline segments`.

Exit status 0: no findings. 1: findings. 2: the audit could not run.
"""

import json
import sys
from typing import TYPE_CHECKING

import click

from barnabas.pipeline.cli import as_json, explained, fail, spark_options, spark_session
from barnabas.status import STATUS_FAILED, STATUS_MISUSED
from barnabas.storage.disk import StorageError
from barnabas.storage.osdisk import OsDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipeline.logs import Log

SUMMARY = ("replica", "topic", "partition", "segments", "batches", "records", "first_offset", "last_offset", "problems")
PROBLEMS_SHOWN = 20
SHUFFLE_PARTITIONS = "16"  # with so many, the shuffle of 5 million records fits into 1 GiB of memory
SPARKS_SHUFFLE_PARTITIONS = "200"


@click.command("audit")
@click.argument("ledgers", nargs=-1, metavar="[LEDGER]...")
@click.option("--replica", "replicas", multiple=True, metavar="[NAME=]DIR", help="A data directory of a broker.")
@click.option("--bootstrap-server", metavar="HOST:PORT", help="Read the topics from a running cluster.")
@click.option("--archive", metavar="DIR", help="Read an archive of `barnabas pipeline archive`.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--compacted", multiple=True, metavar="TOPIC", help="Records of this topic may be missing.")
@click.option("--transactional", multiple=True, metavar="TOPIC", help="Consumers see no markers in this topic.")
@click.option("--live", is_flag=True, help="A broker is writing to the data directories.")
@click.option("--prefix", default="", help="Names of the topics begin with this, those of the archive do not.")
@click.option("--by-order", is_flag=True, help="Number records from 0, for a restored topic has no holes.")
@click.option("--examples", default=10, show_default=True, help="How many findings of each kind are shown.")
@click.option("--html", metavar="FILE", help="Write a page with plots.")
@as_json
@spark_options
def audit_command(  # noqa: PLR0913  # the options of the command, by keyword
    *,
    ledgers: tuple[str, ...],
    replicas: tuple[str, ...],
    bootstrap_server: str | None,
    archive: str | None,
    topics: tuple[str, ...],
    compacted: tuple[str, ...],
    transactional: tuple[str, ...],
    live: bool,
    prefix: str,
    by_order: bool,
    examples: int,
    html: str | None,
    as_json: bool,
    master: str,
    jars: tuple[str, ...],
    driver_memory: str,
) -> None:
    """Compare the brokers' responses with the content of logs.

    LEDGERs are files of JSON lines, or directories of them: those of the cluster tests, or the output of Kafka's
    VerifiableProducer and VerifiableConsumer. The records are read from data directories, from topics, or from an
    archive; if several of these are given, each is also compared with the others.
    """
    if bootstrap_server and not topics:
        raise click.UsageError("--bootstrap-server needs --topic")
    if not (replicas or bootstrap_server or archive):
        raise click.UsageError("what lies there? Give --replica, --bootstrap-server or --archive")
    with spark_session("barnabas audit", master, jars, driver_memory) as spark, explained(STATUS_MISUSED):
        from barnabas.pipeline.auditing import audit
        from barnabas.pipeline.logs import Archive, Segments, Topics
        from barnabas.pipeline.progress import tasks_shown

        suit_to_one_machine(spark)
        try:
            logs: list[Log] = [Segments(replicas, topics, live)] if replicas else []
            if bootstrap_server:
                logs.append(Topics(bootstrap_server, topics, prefix=prefix, by_order=by_order))
            if archive:
                names = [topic.removeprefix(prefix) for topic in topics]
                logs.append(Archive(archive, names, by_order=by_order))
            with tasks_shown(spark, "audit", as_json):
                result = audit(
                    spark, ledgers, logs, compacted=compacted, transactional=transactional, examples=examples
                )
        except (StorageError, ValueError) as error:
            fail(str(error), STATUS_MISUSED)

    from barnabas.pipeline.report import make_page, print_audit

    if html is not None:
        OsDisk().replace_file(OsDisk().absolute_path(html), make_page(result, "Audit").encode())
    if as_json:
        click.echo(json.dumps(result.to_json()))
    else:
        print_audit(result)

    sys.exit(0 if result.is_clean else STATUS_FAILED)


def suit_to_one_machine(spark: "SparkSession") -> None:
    """Fewer tasks than Spark's default, whose hundreds of files cost a small audit on one machine most of its time."""
    name = "spark.sql.shuffle.partitions"
    if spark.sparkContext.master.startswith("local") and spark.conf.get(name) == SPARKS_SHUFFLE_PARTITIONS:
        spark.conf.set(name, SHUFFLE_PARTITIONS)


@click.command("segments")
@click.argument("directories", nargs=-1, required=True, metavar="[NAME=]DIR...")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--live", is_flag=True, help="A broker is writing there.")
@click.option("--to", "target", metavar="DIR", help="Write one row a record there, as Parquet.")
@as_json
@spark_options
def segments_command(  # the options of the command, by keyword
    *,
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    live: bool,
    target: str | None,
    as_json: bool,
    master: str,
    jars: tuple[str, ...],
    driver_memory: str,
) -> None:
    """Read the segments of data directories, Barnabas's or Apache Kafka's, without a broker.

    Prints the size of each partition, and the batches that cannot be read.
    """
    with spark_session("barnabas segments", master, jars, driver_memory) as spark, explained(STATUS_MISUSED):
        from barnabas.pipeline.layout import name_directories
        from barnabas.pipeline.progress import tasks_shown
        from barnabas.pipeline.segments import FORMAT, register

        register(spark)
        reader = spark.read.format(FORMAT).option("replicas", ",".join(directories)).option("live", str(live).lower())
        try:
            name_directories(OsDisk(), directories)  # a missing one is reported here, not by a task
            frame = reader.option("topics", ",".join(topics)).load()
            with tasks_shown(spark, "segments", as_json):
                if target is not None:
                    frame.write.partitionBy("topic").parquet(target)
                    frame = spark.read.parquet(target)
                rows = [row.asDict() for row in summary_of(frame).collect()]
                problems = [row.asDict() for row in problems_of(frame).limit(PROBLEMS_SHOWN).collect()]
        except (StorageError, ValueError) as error:
            fail(str(error), STATUS_MISUSED)

    for row in rows + problems:
        click.echo(json.dumps(row) if as_json else "  ".join(f"{name}: {value}" for name, value in row.items()))
    sys.exit(STATUS_FAILED if problems else 0)


def summary_of(frame: "DataFrame") -> "DataFrame":
    """How much each replica holds of each partition."""
    from pyspark.sql import functions as f

    counted = frame.groupBy("replica", "topic", "partition").agg(
        f.countDistinct("segment").alias("segments"),
        f.countDistinct("segment", "position").alias("batches"),
        f.count("offset").alias("records"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.count("problem").alias("problems"),
    )
    return counted.select(*SUMMARY).orderBy("replica", "topic", "partition")


def problems_of(frame: "DataFrame") -> "DataFrame":
    """The batches that cannot be read."""
    from pyspark.sql import functions as f

    said = ["replica", "topic", "partition", "segment", "position", "base_offset", "last_offset", "problem"]
    return frame.where(f.col("problem").isNotNull()).select(*said).orderBy(*said[:5])
