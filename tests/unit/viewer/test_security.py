import logging
import os
import socket
import struct
import sys
import zlib
from urllib.parse import urljoin, urlsplit

import pytest
from viewer_client import ViewerClient, open_viewer

import rekord as rk
from rekord.errors import RekordError
from rekord.testing import claim_length, example_bytes, frames
from rekord.viewer import security
from rekord.viewer.security import Access, split_host
from rekord.viewer.shell import load_static_files, to_json_block

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    (folder / "x.tfrecord").write_bytes(frames([example_bytes({"a": [i]}) for i in range(3)]))
    with open_viewer(folder / "x.tfrecord") as client:
        client.wait()
        yield client


def test_only_the_loopback_interface_is_listened_on(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with rk.view(tmp_path / "x.tfrecord", port=0) as running:
        assert running._socket.getsockname()[0] == "127.0.0.1"
        assert running._socket.proto == socket.IPPROTO_TCP  # else answers wait for acknowledgements
        assert len(running.path) == 34  # 32 hexadecimal digits are 128 bits


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("{base}api/session", {}, 200),
        ("{base}api/session", {"Host": "localhost:9999"}, 200),  # ssh -L 9999:…
        ("{base}api/session", {"Host": "[::1]:80"}, 200),
        ("{base}api/session", {"Host": "LOCALHOST"}, 200),
        ("{base}api/session", {"Host": "evil.example"}, 421),
        ("{base}api/session", {"Host": "127.0.0.1.evil.example"}, 421),
        ("{base}api/session", {"Host": "evil.example@127.0.0.1"}, 421),
        ("{base}api/session", {"Host": ""}, 421),
        ("/", {}, 403),
        ("/api/session", {}, 403),
        ("/0123456789abcdef0123456789abcdef/api/session", {}, 403),
        ("{short}/api/session", {}, 403),
        ("{base}api/session", {"Origin": "http://127.0.0.1:{port}"}, 200),
        ("{base}api/session", {"Origin": "http://127.0.0.1:1"}, 403),
        ("{base}api/session", {"Origin": "https://evil.example"}, 403),
        ("{base}api/session", {"Origin": "null"}, 403),
        ("{base}api/session", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("{base}api/session", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("{base}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),  # a link in a notebook
        ("{base}api/session", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("{base}api/session", {"Origin": "http://127.0.0.1:{port}@evil.example"}, 403),
        ("{base}static/..%2f..%2frun.py", {}, 404),
        ("{base}static/%2e%2e/%2e%2e/run.py", {}, 404),
        ("{base}static/../../run.py", {}, 404),
        ("{base}static/..\\run.py", {}, 404),
        ("{base}static/a%00.js", {}, 404),
        ("{base}static/", {}, 404),
        ("{base}../{base}api/session", {}, 404),
        ("{base}api/nothing", {}, 404),
        ("http://evil.example/", {}, 403),
    ],
)
def test_requests_are_refused_unless_they_come_from_the_page(viewer, target, headers, status):
    filled = target.format(base=viewer.base, short=viewer.base[:-2])
    sent = {name: value.format(port=viewer.port) for name, value in headers.items()}
    answer = viewer.send("GET", filled, sent)
    assert answer.status == status
    assert answer.headers["content-security-policy"].startswith(POLICY)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_two_hosts_are_no_host(viewer):
    with socket.create_connection((viewer.host, viewer.port)) as connection:
        target = f"{viewer.base}api/session"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".encode())
        line = connection.makefile("rb").readline()
    assert line.split()[1] in (b"400", b"421")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_changes_need_the_origin_of_the_page_and_json(viewer, headers, status):
    assert viewer.post("cancel", {"id": "none"}, headers).status == status


def test_bodies_are_limited(viewer):
    assert viewer.post("sql", {"query": "x" * (5 << 20)}).status == 413
    assert viewer.post("sql", []).status == 400
    headers = {"Origin": f"http://{viewer.host}:{viewer.port}", "Content-Type": "application/json"}
    assert viewer.send("POST", f"{viewer.base}api/sql", headers, b"{nonsense").status == 400
    assert viewer.send("DELETE", f"{viewer.base}api/sql", headers).status == 405


def test_a_body_of_unknown_length_is_refused(viewer):
    origin = f"http://{viewer.host}:{viewer.port}"
    head = [
        f"POST {viewer.base}api/sql HTTP/1.1", f"Host: {viewer.host}", f"Origin: {origin}",
        "Content-Type: application/json", "Transfer-Encoding: chunked", "", "",
    ]  # fmt: skip
    with socket.create_connection((viewer.host, viewer.port)) as connection:
        connection.sendall("\r\n".join(head).replace(f"Host: {viewer.host}", f"Host: {origin[7:]}").encode())
        assert connection.makefile("rb").readline().split()[1] == b"411"


def test_strangers_write_nothing_to_the_terminal(tmp_path, caplog):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        with socket.create_connection((viewer.host, viewer.port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")  # without a Host
            assert connection.makefile("rb").readline().split()[1] == b"400"
        origin = f"{viewer.host}:{viewer.port}"
        head = f"POST {viewer.base}api/sql HTTP/1.1\r\nHost: {origin}\r\nOrigin: http://{origin}\r\n"
        with socket.create_connection((viewer.host, viewer.port)) as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert viewer.get("session").status == 200
    assert logging.getLogger("uvicorn").handlers  # else Python prints warnings itself
    assert not [one for one in caplog.records if one.exc_info]


def test_connections_without_a_request_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.viewer.protocol.FIRST_REQUEST_SECONDS", 0.05)
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with (
        open_viewer(tmp_path / "x.tfrecord") as viewer,
        socket.create_connection((viewer.host, viewer.port), timeout=60) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert connection.recv(1) == b""


def test_a_refused_connection_is_closed_even_if_its_body_never_comes(viewer):
    with socket.create_connection((viewer.host, viewer.port), timeout=60) as connection:
        connection.sendall(f"POST /none HTTP/1.1\r\nHost: {viewer.host}\r\nContent-Length: 100\r\n\r\n".encode())
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 403")


def test_the_link_for_a_browser_works_once_and_does_not_contain_the_token(tmp_path, monkeypatch):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with rk.view(tmp_path / "x.tfrecord", port=0) as running:
        viewer = ViewerClient(running.url)
        path = urlsplit(running.opening_url).path
        assert running.path.strip("/") not in path
        assert viewer.send("GET", path, {"Host": "evil.example"}).status == 421
        assert viewer.send("GET", f"{path}0").status == 403
        with monkeypatch.context() as patch:
            patch.setattr(security, "find_owner", lambda client, server: os.getuid() + 1)
            assert viewer.send("GET", path).status == 403  # it was read by another user of the machine
        answer = viewer.send("GET", path)
        assert (answer.status, urljoin(path, answer.headers["location"])) == (303, running.path)
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert viewer.send("GET", path).status == 403


def test_a_link_for_a_browser_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(security, "_OPENING_SECONDS", -1.0)
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with rk.view(tmp_path / "x.tfrecord", port=0) as running:
        assert ViewerClient(running.url).send("GET", urlsplit(running.opening_url).path).status == 403


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_the_user_of_a_connection_is_known():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        assert security.find_owner(one.getsockname(), listener.getsockname()) == os.getuid()
        assert security.find_owner(("127.0.0.1", 1), listener.getsockname()) is None


def test_an_edit_is_refused_without_the_option(viewer):
    answer = viewer.post("run", {"action": "delete", "records": [["all", 0]]})
    assert answer.status == 403
    assert answer.json["error"]["do"] == "rekord view PATH --edit"


def test_the_address_without_a_slash_leads_to_the_page_by_a_relative_address(viewer):
    answer = viewer.send("GET", viewer.base.rstrip("/"))
    assert (answer.status, answer.headers["location"]) == (307, viewer.base.strip("/") + "/")


def test_notebooks_may_frame_the_page_and_named_hosts_are_accepted(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with open_viewer(tmp_path / "x.tfrecord", hosts=["hub.example.org"]) as viewer:
        answer = viewer.get("session", {"Host": "hub.example.org", "Origin": "https://hub.example.org"})
        assert answer.status == 200
        ancestors = answer.headers["content-security-policy"].split("frame-ancestors ")[1]
        assert ancestors.split() == [
            "'self'", "http://localhost:*", "http://127.0.0.1:*", "http://hub.example.org:*", "https://hub.example.org:*",
        ]  # fmt: skip
        # A proxy that sets Host to its own target.
        assert viewer.get("session", {"Origin": "https://hub.example.org"}).status == 200
        assert viewer.get("session", {"Origin": "https://x@hub.example.org"}).status == 403
        assert viewer.get("session", {"Origin": "https://other.example.org"}).status == 403
        assert viewer.get("session", {"Host": "other.example.org"}).status == 421
    assert Access().policy == POLICY


@pytest.mark.parametrize("host", ["http://hub", "hub:80", "a b", "hub/x", ""])
def test_a_host_is_a_name(tmp_path, host):
    with pytest.raises(RekordError) as caught:
        rk.view(tmp_path, hosts=[host])
    assert caught.value.code == "U605"


def test_hosts_are_compared_without_their_port():
    assert split_host("Example.org:8080") == "example.org"
    assert split_host("[::1]:80") == "::1"
    assert split_host("a/b") is None


def test_static_files_are_typed_and_cached_by_their_content(viewer):
    files = load_static_files()
    assert {one.type.split(";")[0] for one in files.values()} <= {"text/javascript", "text/css", "image/svg+xml"}
    answer = viewer.get("static/main.js")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    again = viewer.get("static/main.js", {"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_static_files_stay_small():
    files = load_static_files().values()
    assert sum(len(one.content) for one in files) <= 150_000
    assert sum(len(one.packed) for one in files) <= 57_000  # what is sent to a browser


def test_a_page_names_no_other_address(viewer):
    page = viewer.get("").body
    assert b"http://" not in page
    assert b"https://" not in page
    assert b"//cdn" not in page


def test_data_in_the_page_cannot_end_its_element():
    block = to_json_block({"name": "</script><script>alert(1)</script>&\u2028"})
    assert not {"<", ">", "&", "\u2028"} & set(block)


HOSTILE_KEYS = ["<script>alert(1)</script>", "\u202eevil", "nul\0key", "{{session}}", "__proto__", "a" * 5000]


def test_hostile_keys_and_values_are_data(tmp_path):
    row = {key: [b"<svg onload=alert(1)>"] for key in HOSTILE_KEYS}
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes(row)]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        page = viewer.get("")
        assert page.status == 200
        assert b"<script>alert" not in page.body
        record = viewer.json("record", record=0)
        assert sorted(one["name"] for one in record["features"]) == sorted(HOSTILE_KEYS)
        for key in HOSTILE_KEYS:
            for name in ("image", "thumb", "audio", "video"):
                answer = viewer.get(name, record=0, feature=key)
                assert (answer.status, answer.headers["content-type"]) == (415, "application/json")


@pytest.mark.parametrize(
    "data",
    [
        b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
        b"<!DOCTYPE html><script>alert(1)</script>",
        b"GIF89a",  # too short to be an image
        b"%PDF-1.7",
    ],
)
def test_nothing_but_raster_images_is_served_as_an_image(tmp_path, data):
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"image": [data]})]))
    with open_viewer(rk.open(tmp_path / "x.tfrecord", schema=rk.Schema({"image": rk.Image()}))) as viewer:
        answer = viewer.get("image", record=0, feature="image")
    assert answer.status in (415, 422)
    assert answer.headers["content-type"] == "application/json"


def make_bomb(width, height):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(1 << 20)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def test_the_header_of_an_image_is_checked_before_it_is_decoded(tmp_path):
    rows = [example_bytes({"image": [make_bomb(60_000, 60_000)]}), example_bytes({"image": [make_bomb(8000, 8001)]})]
    (tmp_path / "x.tfrecord").write_bytes(frames(rows))
    with open_viewer(rk.open(tmp_path / "x.tfrecord", schema=rk.Schema({"image": rk.Image()}))) as viewer:
        viewer.wait()
        for record in (0, 1):
            for name in ("image", "thumb", "mask"):
                assert viewer.get(name, record=record, feature="image").status == 413
        cells = [row["cells"][0] for row in viewer.json("rows")["rows"]]
        assert [cell["image"]["state"] for cell in cells] == ["too_large", "too_large"]
        sheet = viewer.get("mosaic", feature="image", px=8).body
        assert [sheet[20 + 12 * i + 9] for i in range(2)] == [3, 3]


def test_a_record_of_two_gigabytes_is_shown_by_its_head(tmp_path):
    path = tmp_path / "x.tfrecord"
    size_bytes = 2 << 30
    small = frames([example_bytes({"a": [1]})])
    with open(path, "wb") as file:
        file.write(small)
        file.write(claim_length(size_bytes)[:12])
        file.write(b"head of the payload")
        file.truncate(len(small) + 16 + size_bytes)  # sparse: it takes no disk
    with open_viewer(path) as viewer:
        status = viewer.wait()["sides"][0]["splits"][0]
        assert (status["records"], status["complete"]) == (2, True)
        record = viewer.json("record", record=1)
        assert (record["state"], record["bytes"], record["features"]) == ("too_large", size_bytes, [])
        shown = viewer.json("hex", record=1, first=12, count=19)
        assert bytes.fromhex(shown["hex"]) == b"head of the payload"
        assert viewer.get("image", record=1, feature="a").status == 413
        assert viewer.json("rows")["rows"][1]["state"] == "too_large"
        assert viewer.post("sql", {"query": "select count(*) from records"}).status == 400
        assert viewer.post("check", {}).json["state"] == "skipped"


def test_a_claimed_length_allocates_nothing(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"a": [1]})]) + claim_length(1 << 60, b"short"))
    with open_viewer(path) as viewer:
        status = viewer.wait()["sides"][0]["splits"][0]
        assert (status["state"], status["damaged"]) == ("damaged", 1)
        assert viewer.json("rows")["rows"][0]["state"] == "ok"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("rows", {"first": "-1"}),
        ("rows", {"first": "x"}),
        ("rows", {"count": "9" * 400}),
        ("rows", {"filter": "{"}),
        ("rows", {"filter": '{"a": 3}'}),
        ("rows", {"filter": '{"a": {"range": ["x", 1]}}'}),
        ("rows", {"filter": '{"none": {"in": [1]}}'}),
        ("rows", {"order": "none"}),
        ("rows", {"sql": "a = 1) union select 1 --"}),
        ("rows", {"sql": "x" * 20_000}),
        ("rows", {"sql": "a in (select * from read_text('/etc/passwd'))"}),
        ("rows", {"finding": "x"}),
        ("rows", {"cell": "1"}),
        ("record", {}),
        ("record", {"record": "1.5"}),
        ("record", {"record": "99999999999999"}),
        ("thumb", {"record": "0", "feature": "none"}),
        ("thumb", {"record": "0", "feature": "key:none"}),
        ("cube", {"active": "none"}),
        ("rows", {"side": "7"}),
        ("compare", {}),
        ("mosaic", {"feature": "none"}),
        ("tensor", {"record": "0", "feature": "a", "step": "3"}),
    ],
)
def test_bad_parameters_are_errors_with_a_sentence(viewer, name, parameters):
    answer = viewer.get(name, **parameters)
    assert 400 <= answer.status < 500
    assert answer.what


def test_two_viewers_do_not_accept_each_others_tokens(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"a": [1]})]))
    with open_viewer(tmp_path / "x.tfrecord") as one, open_viewer(tmp_path / "x.tfrecord") as other:
        assert one.port != other.port
        assert one.json("session")["sides"] == other.json("session")["sides"]
        mixed = ViewerClient(f"http://127.0.0.1:{one.port}{other.base}")
        assert mixed.get("session").status == 403


def test_a_port_in_use_is_an_error_with_its_number(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer, pytest.raises(RekordError) as caught:
        rk.view(tmp_path / "x.tfrecord", port=viewer.port)
    assert (caught.value.code, caught.value.what) == ("U605", f"port {viewer.port} is in use")


def test_the_frame_and_the_link_of_a_notebook_have_the_address(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([b""]))
    with rk.view(tmp_path / "x.tfrecord", port=0, height=400) as running:
        html = running._repr_html_()
        assert html.count(running.url) == 2
        assert '<iframe src="' in html
        assert 'height="400"' in html
        assert repr(running) == f"Viewer: {running.url} (running)"
    assert not running.is_running
    assert "iframe" not in running._repr_html_()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", ViewerClient(running.url).port), timeout=5).close()
