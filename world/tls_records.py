"""What arrived on a TLS connection, cut into portions that are decrypted in one step (pure).

OpenSSL takes about 3 us for a record with a few bytes of data, and 14 us for a key update, which has 27 bytes and gives
no data: a megabyte of them would take half a second. So the records of a portion are counted. Their heads, which show
their lengths, are not encrypted.
"""

HEAD_BYTES = 5  # of a record: its type, a version, and its length in two bytes
# OpenSSL's buffers never shrink, so a portion of this size stays in the memory of an idle connection.
PORTION_BYTES = 1 << 15


class ArrivedRecords:
    """Bytes that arrived and that were not taken. A portion never ends in the middle of a record's head."""

    __slots__ = ("_arrived", "_position", "_rest_bytes", "has_portion")

    def __init__(self) -> None:
        self._arrived: bytes | bytearray = b""
        self._position = 0  # up to which it was taken
        self._rest_bytes = 0  # of a record whose beginning was taken
        self.has_portion = False

    def would_be_one(self, arrived: bytes) -> bool:
        """Whether these bytes, if they come next, are a record and nothing else: it need not be cut."""
        return (
            not self._arrived
            and not self._rest_bytes
            and len(arrived) >= HEAD_BYTES
            and len(arrived) == _length_at(arrived, 0)
        )

    def add(self, arrived: bytes | bytearray) -> None:
        """These bytes arrived."""
        left = self._arrived[self._position :]
        self._arrived = left + arrived if left else arrived
        self._position = 0
        self._look()

    def take(self, records_max: int) -> tuple[memoryview, int]:
        """The next portion, in which at most `records_max` records begin, and how many do. Only if `has_portion`."""
        arrived = self._arrived
        begin = self._position
        end = min(begin + PORTION_BYTES, len(arrived))
        head = begin + self._rest_bytes
        records = 0
        while head + HEAD_BYTES <= end and records < records_max:
            records += 1
            # This is `_length_at` without the call: a producer may send each message as a record of its own.
            head += HEAD_BYTES + (arrived[head + 3] << 8) + arrived[head + 4]
        end = min(head, end)
        self._position = end
        self._rest_bytes = head - end
        self._look()
        return memoryview(arrived)[begin:end], records

    def take_left(self) -> bytes | bytearray:
        """A part of a head, when nothing follows."""
        left = self._arrived[self._position :]
        self._arrived = b""
        self._position = 0
        return left

    def _look(self) -> None:
        left_bytes = len(self._arrived) - self._position
        self.has_portion = left_bytes >= HEAD_BYTES or (left_bytes > 0 and self._rest_bytes > 0)
        if not left_bytes:
            self._arrived = b""
            self._position = 0


def _length_at(arrived: bytes | bytearray, head: int) -> int:
    """The length of the record whose head is here, the head included."""
    return HEAD_BYTES + (arrived[head + 3] << 8) + arrived[head + 4]
