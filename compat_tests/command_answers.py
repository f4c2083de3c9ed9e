"""What tasks leave behind on a broker, and what they print, in forms that can be compared (`command_task.py`)."""

import json
import re
from itertools import takewhile

# -- what is left behind


def topic_state(both, names):
    """The partitions and properties of the topic; None if there is none."""
    if names("orders") not in topic_names(both):
        return None
    (shown,) = both.rows("topics", "show", names("orders"))
    return shown["properties"], [(row["partition"], len(row["replicas"])) for row in shown["partitions"]]


def topic_names(both):
    return [row["topic"] for row in both.rows("topics", "ls")]


def records(both, names, topic="orders"):
    rows = both.rows("consume", names(topic))
    return [(row["partition"], row["offset"], row["key"], row["value"], row["headers"]) for row in rows]


def copied_records(both, names):
    return [row[2:4] for row in records(both, names, "copies")]


def committed(both, names):
    """Where the group is; None if there is no such group."""
    if names("billing") not in [row["group"] for row in both.rows("groups", "ls")]:
        return None
    rows = both.rows("groups", "show", names("billing"))
    return [(row["partition"], row["committed"], row["end"], row["lag"]) for row in rows]


def quotas(both, names):
    mine = {names("alice"), names("app"), names("10.0.0.1")}
    rows = both.rows("quotas", "ls")
    return [
        (row["defaults"], row["quota"], row["value"], sorted(kind for kind in ("user", "client_id", "ip") if row[kind]))
        for row in rows
        if mine & {row["user"], row["client_id"], row["ip"]} or row["defaults"]
    ]


def acls(both, names):
    rows = both.rows("acls", "ls")
    return sorted(
        [row["resource"], row["pattern"], row["host"], row["operation"], row["permission"]]
        for row in rows
        if row["principal"] == f"User:{names('alice')}"
    )


# -- what is printed


def words(text):
    return sorted(text.split())


def lines(text):
    return sorted(text.splitlines())


def columns(*wanted):
    """The columns of a table with these headings, in this order, without what stands around it."""

    def parse(text):
        rows = [line.split() for line in text.splitlines()]
        begin = next(number for number, row in enumerate(rows) if set(wanted) <= set(row))
        places = [rows[begin].index(heading) for heading in wanted]
        # Another table may follow, behind an empty line.
        body = takewhile(bool, rows[begin + 1 :])
        return sorted([row[place] for place in places] for row in body)

    return parse


def described_partitions(text):
    """Of `kafka-topics.sh --describe`: partition, leader, replicas, ISR."""
    found = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", text)
    return sorted(map(list, found))


def end_offsets(text):
    """Of `kafka-get-offsets.sh`: partition, offset."""
    return sorted(map(list, re.findall(r"^\S+:(\d+):(\d+)$", text, re.MULTILINE)))


def first_offset(text):
    return text.strip().split(":")[-1]


def printed_records(text):
    """Without what the tool says about itself."""
    return sorted(line for line in text.splitlines() if not line.startswith("Processed a total of"))


def records_of_span(text):
    """Of two `kafka-get-offsets.sh`, and a consumer that has read what is between the offsets: the records."""
    first, second, *printed = text.splitlines()
    found = printed_records("\n".join(printed))
    assert len(found) == int(first_offset(second)) - int(first_offset(first))
    return found


def broker_ids(text):
    return sorted(re.findall(r"\(id: (\d+) rack:", text))


def api_versions(text):
    """Of `kafka-broker-api-versions.sh`: name, lowest and highest version."""
    found = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))?", text)
    return sorted([name, low, high or low] for name, _, low, high in found)


def all_properties(text):
    """Of `kafka-configs.sh --describe --all`: the names and values of what is not secret."""
    found = re.findall(r"^  ([\w.]+)=(.*) sensitive=false synonyms=", text, re.MULTILINE)
    return sorted([name, value] for name, value in found if value != "null")


def own_properties(text):
    (shown,) = map(json.loads, text.splitlines())
    rows = [row for row in shown["properties"] if not row["sensitive"] and row["value"] is not None]
    return sorted([row["property"], row["value"]] for row in rows)


def log_dirs(text):
    (described,) = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(each["logDir"] for broker in described["brokers"] for each in broker["logDirs"])


def own_log_dirs(text):
    (shown,) = map(json.loads, text.splitlines())
    return sorted(row["log_dir"] for row in shown["log_dirs"])


def cluster_id(text):
    return text.split()[-1]


def own_cluster_id(text):
    return json.loads(text.splitlines()[0])["cluster"]


def listed_acls(text):
    """Of `kafka-acls.sh --list`: operation and permission of each."""
    return sorted(map(list, re.findall(r"operation=(\w+), permissionType=(\w+)", text)))


def own_acls(text):
    rows = map(json.loads, text.splitlines())
    return sorted([row["operation"].upper(), row["permission"].upper()] for row in rows)


def planned_offsets(text):
    """Of `--reset-offsets`, which prints its rows and their four headings on one line."""
    cells = text.split()[4:]
    return sorted([cells[place + 2], cells[place + 3]] for place in range(0, len(cells), 4))


def leaders(both, names):
    (shown,) = both.rows("topics", "show", names("orders"))
    return [(row["partition"], row["leader"], row["replicas"]) for row in shown["partitions"]]


def replicas_when_moved(both, names):
    """The replicas when nothing is being moved any more."""
    while both.rows("move", names("orders")):
        pass
    (shown,) = both.rows("topics", "show", names("orders"))
    return [(row["partition"], row["replicas"]) for row in shown["partitions"]]


def throttles(both, names):
    replicas_when_moved(both, names)
    (shown,) = both.rows("topics", "show", names("orders"))
    return {"left": sorted(shown["properties"])}
