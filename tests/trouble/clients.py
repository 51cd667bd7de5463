"""A client as clients are: what failed is sent again under the same key, until it is accepted."""

from functools import partial
from uuid import UUID, uuid4

import httpx2

from tests.acceptance import live
from tests.acceptance.live import Agent

SECONDS = 45.0


class Client:
    """Sends each booking until it is accepted, under one key, and keeps what was accepted at once."""

    def __init__(self, agent: Agent) -> None:
        self.keys: list[str] = []
        self.accepted: dict[str, UUID] = {}
        self._agent = agent

    def book(self, key: str = "") -> bool:
        key = key or uuid4().hex
        if key not in self.keys:
            self.keys.append(key)
        try:
            answer = self._agent.post(key)
        except httpx2.HTTPError:
            return False
        if answer.status_code in (200, 202):
            known = self.accepted.setdefault(key, UUID(answer.json()["id"]))
            assert known == UUID(answer.json()["id"]), "a key leads to one booking"
            return True
        assert answer.status_code >= 500, answer.text
        return False

    def insist(self) -> list[UUID]:
        """All of them again: what was accepted is still there, and what was not is accepted now."""
        for key in self.keys:
            live.until(partial(self.book, key), SECONDS)
        return list(self.accepted.values())
