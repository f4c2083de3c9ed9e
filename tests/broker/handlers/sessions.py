"""What tests share with `test_fetch_in_sessions.py`."""

from tests.broker.requests import fetch_request, fetched


class Session:
    """An incremental fetch session of one client."""

    def __init__(self, client, version=12) -> None:
        self.client = client
        self.version = version
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, wanted=(), *, forget=(), max_wait_ms=0, **fields):
        request = fetch_request(
            wanted, forget=forget, session=(self.session_id, self.epoch), max_wait_ms=max_wait_ms, **fields
        )
        answer = await self.client.ask(request, self.version)
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer

    async def rows(self, wanted=(), **options):
        answer = await self.fetch(wanted, **options)
        assert answer.error_code == 0
        return {row.partition_index: row for _, row in fetched(answer)}
