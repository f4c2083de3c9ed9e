"""What a request is that was begun in the step that has read it, and has to wait."""


class Waiting:
    """A request that was begun in the step that has read it, and that waits."""

    __slots__ = ()

    async def finish(self) -> object:
        """Wait; the response, or what the handler goes on with."""
        raise NotImplementedError
