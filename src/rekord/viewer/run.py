"""`rk.view`: a viewer of a dataset, served by a thread of this process."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rekord.arguments import check_keywords, integer, invalid
from rekord.errors import RekordError, error
from rekord.report.charts import escape_html
from rekord.report.notebook import never_raises

if TYPE_CHECKING:
    from rekord.dataset.dataset import Dataset
    from rekord.dataset.split import Split
    from rekord.storage.local import PathLike

HOST = "127.0.0.1"
FIRST_PORT = 7355
_TRIED_PORTS = 64
_STOP_SECONDS = 2.0
_MAX_PORT = 65_535


class Viewer:
    """A viewer that is running: `url` is its address, in a notebook it is shown in a frame.

    It ends with `close()`, at the end of a `with` block, or with the process.
    """

    def __init__(self, given: Sequence[Any], *, port: int | None, edit: bool, hosts: Iterable[str], framed: bool,
                 predictions: Any, height: int) -> None:  # fmt: skip
        from rekord.viewer.security import Access
        from rekord.viewer.session import Session

        self._height = height
        self._access = Access(hosts=frozenset(hosts), framed=framed, edit=edit)
        # Before anything is opened: a port that is in use is reported at once.
        self._socket = open_port(port)
        self._port: int = self._socket.getsockname()[1]
        try:
            self._session = Session(given, edit=edit, predictions=predictions)
        except BaseException:
            self._socket.close()
            raise
        self._session.start()
        self._server: Any = None
        self._thread = threading.Thread(target=self._serve, name="rekord-view", daemon=True)
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread.start()
        atexit.register(self.close)

    @property
    def port(self) -> int:
        """The port on the loopback interface."""
        return self._port

    @property
    def path(self) -> str:
        """The path of the page, which contains the secret token."""
        return f"/{self._access.token}/"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}{self.path}"

    @property
    def opening_url(self) -> str:
        """An address that leads this user to the page once: other users can read the arguments of a browser."""
        return f"http://{HOST}:{self.port}{self._access.opening.path}"

    @property
    def is_running(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it ended, or for some seconds; returns whether it ended."""
        ended = self._ended.wait(seconds)
        if self._failure is not None:
            raise self._failure
        return ended

    def close(self) -> None:
        """Stop the server and its background threads."""
        atexit.unregister(self.close)
        if self._server is not None:
            self._server.should_exit = True
        self._session.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"Viewer: {self.url} ({state})"

    @never_raises
    def _repr_html_(self) -> str:
        url = escape_html(self.url)
        if not self.is_running:
            return "<p>viewer: stopped</p>"
        return (
            f'<iframe src="{url}" title="rekord view" width="100%" height="{self._height}" '
            f'style="border:1px solid #8888;border-radius:8px" allow="clipboard-write"></iframe>'
            f'<p><a href="{url}" target="_blank" rel="noopener noreferrer">Open in a tab</a></p>'
        )

    def _serve(self) -> None:
        try:
            import uvicorn

            from rekord.viewer.protocol import SilenceLimitedProtocol
            from rekord.viewer.server import build_app

            # What strangers send is no news for the terminal; an application that configures logging has it.
            logging.getLogger("uvicorn").addHandler(logging.NullHandler())
            config = uvicorn.Config(
                build_app(self._session, self._access),
                http=SilenceLimitedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=64 << 10,
                limit_concurrency=200,
            )
            self._server = uvicorn.Server(config)
            self._server.run(sockets=[self._socket])
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ended.set()


def open_port(port: int | None) -> socket.socket:
    """A socket that listens on the loopback interface: on `port`, or on the first usual one that is free."""
    tried = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIED_PORTS), 0]
    failure: OSError | None = None
    for number in tried:
        # With its protocol named: only then does asyncio switch Nagle's algorithm off, with which every answer would
        # wait 40 ms for an acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, number))
            # It accepts connections from now on, and answers them as soon as the server is loaded.
            listener.listen(128)
            listener.set_inheritable(False)
            return listener
        except OSError as refused:
            listener.close()
            failure = refused
    raise _port_error(port, failure)


def _port_error(port: int | None, failure: OSError | None) -> RekordError:
    taken = failure is not None and failure.errno == errno.EADDRINUSE
    return error(
        "U605",
        f"port {port} is in use" if taken and port is not None else "no port can be opened",
        expected="a free port on 127.0.0.1",
        found="another program that listens on it" if taken else getattr(failure, "strerror", None) or "no free port",
        do="leave out port=, or choose another one: port=0",
    )


@check_keywords
def view(
    path: PathLike | Sequence[PathLike] | Dataset | Split,
    other: PathLike | Sequence[PathLike] | Dataset | Split | None = None,
    *,
    port: int | None = None,
    edit: bool = False,
    hosts: Sequence[str] = (),
    predictions: PathLike | None = None,
    height: int = 720,
) -> Viewer:
    """Show a dataset in the browser, or two side by side: records, images, masks, boxes, histograms, findings.

    In a notebook, the result is shown as a frame of `height` pixels, and a link. The server runs on a thread, answers
    this machine only, and ends with the process. If the notebook is served from another host, name it in `hosts`.
    `predictions` is a file that `rk.train` wrote; `edit` lets the page write new datasets.
    """
    return start_viewer(
        [path] if other is None else [path, other],
        port=port,
        edit=edit,
        hosts=hosts,
        framed=True,
        predictions=predictions,
        height=integer("height", height, least=100),
    )


def start_viewer(
    given: Sequence[Any],
    *,
    port: int | None = None,
    edit: bool = False,
    hosts: Sequence[str] = (),
    framed: bool = False,
    predictions: Any = None,
    height: int = 720,
) -> Viewer:
    """A viewer of one or two datasets; `framed` if notebooks may show it in a frame."""
    from rekord.viewer.security import split_host

    if port is not None and integer("port", port, least=0, do="port=8080") > _MAX_PORT:
        raise invalid("port", port, f"a port from 0 to {_MAX_PORT:,}", "port=8080")
    if isinstance(hosts, str) or not all(isinstance(one, str) and split_host(one) == one.lower() for one in hosts):
        raise invalid("hosts", hosts, "a list of host names, without ports", 'hosts=["hub.example.org"]')
    names = [one.lower() for one in hosts]
    return Viewer(
        given, port=port, edit=bool(edit), hosts=names, framed=framed, predictions=predictions, height=height
    )
