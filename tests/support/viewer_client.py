"""Real requests to a viewer on the loopback interface, without a browser."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import rekord as rk


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def what(self) -> str:
        """The first line of an error."""
        return str(self.json["error"]["what"])


class ViewerClient:
    """Asks one viewer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.base = parts.hostname or "", parts.port or 0, parts.path
        self.requests = 0

    def send(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """A request with exactly this target, whatever its path is."""
        self.requests += 1
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            given = {"Host": f"{self.host}:{self.port}", **(headers or {})}
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            if body is not None:
                given["Content-Length"] = str(len(body))
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, name: str, headers: dict[str, str] | None = None, **parameters: Any) -> Answer:
        """`api/NAME`, or a file of the page."""
        asked = urlencode({key: value for key, value in parameters.items() if value is not None}, quote_via=quote)
        place = name if name.startswith("static/") or not name else f"api/{name}"
        return self.send("GET", f"{self.base}{place}{'?' + asked if asked else ''}", headers)

    def json(self, name: str, **parameters: Any) -> Any:
        """The document of an answer that must be good."""
        answer = self.get(name, **parameters)
        assert answer.status == 200, (answer.status, answer.body[:500])
        return answer.json

    def post(self, name: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """A change, as the page sends it."""
        usual = {"Origin": f"http://{self.host}:{self.port}", "Content-Type": "application/json"}
        sent = {key: value for key, value in {**usual, **(headers or {})}.items() if value}
        return self.send("POST", f"{self.base}api/{name}", sent, json.dumps(body).encode())

    def wait(self) -> Any:
        """The status when nothing runs in the background any more."""
        while (status := self.json("status"))["busy"]:
            time.sleep(0.02)
        return status

    def wait_for_check(self) -> Any:
        """The status when the check is done."""
        while (status := self.json("status"))["check"]["state"] in ("idle", "running"):
            time.sleep(0.02)
        return status


@contextmanager
def open_viewer(*given: Any, **options: Any) -> Iterator[ViewerClient]:
    """A viewer and its client until the end of the block."""
    with rk.view(*given, port=0, **options) as viewer:
        yield ViewerClient(viewer.url)
