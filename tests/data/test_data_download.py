"""Downloads succeed or fail cleanly with a local server that stalls, cuts, ignores ranges, lies, or sends web pages."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.data.shared import download as module
from runner.data.shared.card import SourceFile
from runner.data.shared.download import download
from runner.errors import DataError

CONTENT = bytes(range(256)) * 8000  # 2 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Answer as the path says; `log` holds (path, Range header or None) of every request."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str | None]] = []
        self.tag = '"one"'
        self.content = CONTENT
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self.thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/{path}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        kind = request.path.strip("/")
        first = not any(path == kind for path, _ in self.log)
        self.log.append((kind, asked))
        if kind in ("404", "503"):
            request.send_error(int(kind))
            return
        if kind == "page":
            request.send_response(200)
            request.send_header("Content-Type", "text/html; charset=utf-8")
            request.end_headers()
            request.wfile.write(b"<html>Google Drive cannot scan this file</html>")
            return
        data, start = self.content, 0
        honours = asked is not None and kind != "ignores_range" and request.headers["If-Range"] == self.tag
        if honours:
            assert asked is not None
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            request.send_response(200)
        request.send_header("ETag", self.tag)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        half = start + (len(data) - start) // 2
        if (kind in ("cuts", "ignores_range") and first) or kind == "always_cuts":
            request.wfile.write(data[start:half] if kind != "always_cuts" else b"")
        elif kind == "stalls" and first:
            request.wfile.write(data[start:half])
            request.wfile.flush()
            time.sleep(0.6)
        else:
            request.wfile.write(data[start:])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.005)
    server = Server()
    yield server
    server.close()


def source(*urls: str, sha256: str | None = SHA256, md5: str | None = None) -> SourceFile:
    return SourceFile(name="data.zip", urls=urls, sha256=sha256, md5=md5)


def only_file(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == ["data.zip"]


def test_plain_download_then_reuse(server: Server, tmp_path: Path) -> None:
    file = source(server.url("ok"), md5=hashlib.md5(CONTENT).hexdigest())
    assert download(file, tmp_path).read_bytes() == CONTENT
    download(file, tmp_path)
    assert server.log == [("ok", None)]
    assert only_file(tmp_path)


@pytest.mark.parametrize("kind", ["cuts", "stalls"])
def test_interrupted_transfers_resume(server: Server, tmp_path: Path, kind: str) -> None:
    assert download(source(server.url(kind)), tmp_path).read_bytes() == CONTENT
    assert server.log == [(kind, None), (kind, f"bytes={len(CONTENT) // 2}-")]
    assert only_file(tmp_path)


def test_a_server_that_ignores_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    assert download(source(server.url("ignores_range")), tmp_path).read_bytes() == CONTENT
    assert len(server.log) == 2
    assert server.log[1][1] is not None


def test_a_later_run_resumes_only_the_same_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    part = tmp_path / "data.zip.part"
    state = tmp_path / "data.zip.part.json"
    for tag, expected_range in (('"one"', "bytes=1000-"), ('"other"', "bytes=1000-")):
        part.write_bytes(CONTENT[:1000] if tag == server.tag else b"?" * 1000)
        state.write_text(json.dumps({"url": server.url("ok"), "validator": tag}))
        server.log.clear()
        assert download(source(server.url("ok")), tmp_path).read_bytes() == CONTENT
        assert server.log == [("ok", expected_range)]
        (tmp_path / "data.zip").unlink()
    part.write_bytes(b"?" * 1000)  # it belongs to another address, so it is not resumed
    state.write_text('{"url": "http://elsewhere/", "validator": "x"}')
    server.log.clear()
    assert download(source(server.url("ok")), tmp_path).read_bytes() == CONTENT
    assert server.log == [("ok", None)]


def test_a_part_longer_than_the_file_is_discarded(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.zip.part").write_bytes(CONTENT + b"more")
    (tmp_path / "data.zip.part.json").write_text(json.dumps({"url": server.url("ok"), "validator": server.tag}))
    assert download(source(server.url("ok")), tmp_path).read_bytes() == CONTENT
    assert [asked is None for _, asked in server.log] == [False, True]


def test_mirrors_in_order(server: Server, tmp_path: Path) -> None:
    urls = [server.url(kind) for kind in ("404", "page", "ok", "never")]
    assert download(source(*urls), tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.log] == ["404", "page", "ok"]


def test_all_mirrors_fail_in_one_line(server: Server, tmp_path: Path) -> None:
    urls = [server.url(kind) for kind in ("404", "page", "503", "always_cuts")]
    with pytest.raises(DataError) as caught:
        download(source(*urls, "ftp://127.0.0.1/x", "file:///etc/passwd"), tmp_path)
    message = str(caught.value)
    for part in ("HTTP 404", "web page instead", "HTTP 503", "cut after 0 of", "only http and https"):
        assert part in message
    assert "\n" not in message
    assert not (tmp_path / "data.zip").exists()
    assert sum(path == "404" for path, _ in server.log) == 1, "a missing file is not asked for again"
    assert sum(path == "503" for path, _ in server.log) == module.ATTEMPTS


def test_wrong_checksum_is_an_error_and_removes_the_file(server: Server, tmp_path: Path) -> None:
    for wrong in (
        source(server.url("ok"), sha256="0" * 64),
        source(server.url("ok"), sha256=None, md5="0" * 32),
    ):
        with pytest.raises(DataError, match=r"wrong (sha256|md5): expected 0+, found .*removed"):
            download(wrong, tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_damaged_local_copy_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(b"damaged")
    assert download(source(server.url("ok")), tmp_path).read_bytes() == CONTENT


def test_unpublished_checksum_is_recorded_and_held_to(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = source(server.url("ok"), sha256=None)
    download(file, tmp_path)
    assert f"recorded sha256 {SHA256}" in capsys.readouterr().err
    assert (tmp_path / "data.zip.sha256").read_text() == SHA256 + "\n"
    (tmp_path / "data.zip").unlink()
    server.content = CONTENT[:-1]
    with pytest.raises(DataError, match=r"recorded .* earlier"):
        download(file, tmp_path)
    assert not (tmp_path / "data.zip").exists()


def test_nothing_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    with pytest.raises(DataError, match="refused"):
        download(source("http://127.0.0.1:9/x"), tmp_path)


def test_drive_ids_become_addresses() -> None:
    first, second = module._addresses("gdrive:ABC&resourcekey=0-x")
    assert first == "https://drive.usercontent.google.com/download?id=ABC&resourcekey=0-x&export=download&confirm=t"
    assert second.startswith("https://drive.google.com/uc?id=ABC")
