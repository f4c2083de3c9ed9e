"""The rows of `barnabas-segments` as lines of JSON, bytes in base64: what a test without PySpark compares.

python -m compat_tests.pipeline.segment_rows OPTIONS      # as JSON; one line a row
"""

import json
import sys

from barnabas.pipeline.segments import FORMAT, register
from barnabas.pipeline.session import open_session


def main() -> None:
    spark = open_session("segment rows", **{"spark.sql.jsonGenerator.ignoreNullFields": "false"})
    register(spark)
    rows = spark.read.format(FORMAT).options(**json.loads(sys.argv[1])).load()
    for line in rows.toJSON().toLocalIterator():
        print(line)
    spark.stop()


if __name__ == "__main__":
    main()
