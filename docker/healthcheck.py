"""Whether the broker in this container answers: ApiVersions, the request that every client begins with.

Standard library alone, and no import of Barnabas, for it runs every few seconds. It asks the listener at port 9092 (or
what PORT says), which the broker alone and those of compose.yaml have; status 0 means that an answer came.
"""

import os
import socket
import struct
import sys

API_VERSIONS_KEY, VERSION, CORRELATION_ID = 18, 0, 1
SECONDS = 2.0


def main() -> int:
    """Ask once."""
    request = struct.pack(">hhih", API_VERSIONS_KEY, VERSION, CORRELATION_ID, -1)  # -1: no client id
    try:
        with socket.create_connection(("127.0.0.1", int(os.environ.get("PORT", "9092"))), SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError as error:
        print(error)
        return 1
    _, correlation_id, error_code = struct.unpack(">iih", answer) if len(answer) == 10 else (0, 0, -1)
    return 0 if (correlation_id, error_code) == (CORRELATION_ID, 0) else 1


if __name__ == "__main__":
    sys.exit(main())
