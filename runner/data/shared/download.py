"""Download files despite stalls, cut connections and dead mirrors, and never leave a wrong file in place.

Bytes are written to `<file>.part`. `<file>.part.json` holds the address and the validator (ETag or date), so that a
later run resumes only a file that is certainly the same. The finished file is checked, then renamed.
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from runner.data.shared.card import SourceFile
from runner.data.shared.files import hash_file
from runner.errors import DataError

STALL_SECONDS = 30.0  # a connection without a byte for this long counts as cut
ATTEMPTS = 4  # an address is given up after this many attempts in a row without a new byte
PAUSE_SECONDS = 1.0  # pause before the second attempt; it doubles with each further one
CHUNK_BYTES = 1 << 20


class _Failed(Exception):
    """This address cannot give the file; the next mirror is tried."""


def download(file: SourceFile, folder: Path) -> Path:
    """Return the path `folder/file.name`, after a download from the first mirror that works.

    A file that is already there with the right checksum is reused; one with a wrong checksum is removed. Raises
    DataError if no mirror works; the message says what went wrong at each address.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file.name
    if path.exists():
        if _wrong(path, file, path) is None:
            return path
        print(f"{path}: fails its checksum, fetching it again", file=sys.stderr)
        path.unlink()
    failures = []
    for address in (url for source in file.urls for url in _addresses(source)):
        part = path.with_name(path.name + ".part")
        try:
            _fetch(address, part)
            if (problem := _wrong(part, file, path)) is not None:
                _forget(part)
                raise _Failed(f"{problem}; the file was removed")
        except _Failed as failure:
            failures.append(f"{address}: {failure}")
            continue
        if file.sha256 is None and not _record(path).exists():
            found = hash_file(part)
            _record(path).write_text(found + "\n")
            print(f"{path.name}: no checksum is published; recorded sha256 {found}", file=sys.stderr)
        part.rename(path)
        _forget(part)
        return path
    raise DataError(f"cannot fetch {file.name}: " + "; ".join(failures or ["no address is known"]))


def checksum_problem(path: Path, file: SourceFile) -> str | None:
    """Return which published checksum a file does not match; None if it matches all or none is published."""
    for algorithm, wanted in (("sha256", file.sha256), ("md5", file.md5)):
        if wanted is not None and (found := hash_file(path, algorithm)) != wanted:
            return f"wrong {algorithm}: expected {wanted}, found {found}"
    return None


def _record(path: Path) -> Path:
    """Return the file that holds the sha256 of the first download where none is published."""
    return path.with_name(path.name + ".sha256")


def _wrong(candidate: Path, file: SourceFile, path: Path) -> str | None:
    """Return what is wrong with the checksum of `candidate`, or None.

    Where no sha256 is published, the file must match the sha256 recorded at an earlier download.
    """
    if (problem := checksum_problem(candidate, file)) is not None or file.sha256 is not None:
        return problem
    record = _record(path)
    if record.exists() and (found := hash_file(candidate)) != record.read_text().strip():
        return (
            f"wrong sha256: recorded {record.read_text().strip()} earlier, found {found}"
            f" (delete {record} to accept the new file)"
        )
    return None


def _addresses(url: str) -> list[str]:
    """Return the addresses to try: a Google Drive id has two, both of which skip the page about virus scans."""
    if not url.startswith("gdrive:"):
        return [url]
    query = f"id={url.removeprefix('gdrive:')}&export=download&confirm=t"
    return [f"https://drive.usercontent.google.com/download?{query}", f"https://drive.google.com/uc?{query}"]


def _forget(part: Path) -> None:
    """Delete a partial download and what is known of it."""
    part.unlink(missing_ok=True)
    part.with_name(part.name + ".json").unlink(missing_ok=True)


def _fetch(url: str, part: Path) -> None:
    """Fill `part` from one address, resuming after each interruption. Raises _Failed."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise _Failed("only http and https addresses are fetched")
    failures, farthest = 0, 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        farthest = max(farthest, before)
        try:
            _fetch_rest(url, part)
            return
        except urllib.error.HTTPError as error:
            error.close()
            reason, final = (
                f"HTTP {error.code} {error.reason}",
                error.code < 500 and error.code not in (408, 429),
            )
            if error.code == 416:  # the part is longer than the file, so it belongs to another file
                _forget(part)
                final = before == 0
        except TimeoutError:
            reason, final = f"no byte for {STALL_SECONDS:g} s", False
        except (OSError, http.client.HTTPException) as error:
            reason, final = str(getattr(error, "reason", error)) or type(error).__name__, False
        # A server that cannot resume starts again from the first byte, so only a new maximum counts as progress.
        failures = 0 if part.exists() and part.stat().st_size > farthest else failures + 1
        if final or failures >= ATTEMPTS:
            raise _Failed(reason)
        time.sleep(PAUSE_SECONDS * 2**failures)


def _fetch_rest(url: str, part: Path) -> None:
    """Fetch over one connection until `part` is complete. Raises OSError or HTTPException if it is cut."""
    from tqdm import tqdm

    state_path = part.with_name(part.name + ".json")
    state = _read_state(state_path)
    have = part.stat().st_size if part.exists() and state.get("url") == url else 0
    headers = {"User-Agent": "prepare-dataset", "Accept-Encoding": "identity"}
    if have and state.get("validator"):
        headers |= {"Range": f"bytes={have}-", "If-Range": state["validator"]}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=STALL_SECONDS) as answer:
        if answer.headers.get_content_type() == "text/html":
            raise _Failed("answered with a web page instead of the file")
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        if answer.status == 206 and not resumed:
            raise _Failed("answered with another range than asked for")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        # A weak ETag promises the same meaning, not the same bytes.
        tag = answer.headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
        state_path.write_text(json.dumps({"url": url, "validator": validator}))
        bar = tqdm(
            total=total,
            initial=have,
            unit="B",
            unit_scale=True,
            desc=part.stem,
            file=sys.stderr,
            disable=None,
        )
        with bar, _open_part(part, "ab" if resumed else "wb") as file:
            # read1 returns what has arrived; read would wait for more and lose it if the connection stalls.
            while data := answer.read1(CHUNK_BYTES):
                try:
                    file.write(data)
                except OSError as error:
                    raise DataError(f"{part}: cannot be written: {error.strerror}") from None
                have += len(data)
                bar.update(len(data))
    if total is not None and have < total:
        raise ConnectionError(f"the connection was cut after {have} of {total} bytes")


def _open_part(part: Path, mode: str) -> Any:
    try:
        return part.open(mode)
    except OSError as error:
        raise DataError(f"{part}: cannot be written: {error.strerror}") from None


def _read_state(path: Path) -> dict[str, str]:
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
