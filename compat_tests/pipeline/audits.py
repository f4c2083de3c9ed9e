"""Several audits in one Spark session, for tests: starting Spark costs more than a small audit.

    python -m compat_tests.pipeline.audits < JOBS

A job is a line of JSON: `ledgers`, `replicas`, and what else `audit` takes; the answer is the audit's, on one line.
"""

import json
import sys

from barnabas.pipeline.auditing import audit
from barnabas.pipeline.logs import Segments
from barnabas.pipeline.session import open_session

# The better compiler of Java takes longer than small audits give it time to save; alone the other one needs more room.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"


def main() -> None:
    spark = open_session("audits", **{"spark.sql.shuffle.partitions": "4", "spark.driver.extraJavaOptions": QUICK})
    for line in sys.stdin:
        job = json.loads(line)
        log = Segments(job.pop("replicas"), job.pop("topics", ()))
        print(json.dumps(audit(spark, job.pop("ledgers"), log, **job).to_json()), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
