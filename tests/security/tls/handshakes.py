"""What tests share with `test_contexts.py`."""

import ssl


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None):
    """Both sides after a handshake, and a byte from the client: TLS 1.3 tells a client late that it was refused."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [theirs.do_handshake, ours.do_handshake]
    while waiting:
        step = waiting.pop(0)
        try:
            step()
        except ssl.SSLWantReadError:
            waiting.append(step)
    return ours, theirs
