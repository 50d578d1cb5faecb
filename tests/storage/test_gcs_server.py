"""The simulated Cloud Storage keeps the documented rules, tested with a plain HTTP client instead of ours."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from orch_fronts.buckets import MAX_PAGE, MIN_PART
from orch_fronts.google.gcs import GcsServer, gcs_server

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def server() -> Iterator[GcsServer]:
    with gcs_server() as made:
        made.create_bucket("b")
        yield made


def test_generation_preconditions_are_enforced(server: GcsServer) -> None:
    create = {"x-goog-if-generation-match": "0"}
    status, headers, _ = _ask(server, "PUT", "/b/k", b"1", create)
    assert status == 200
    assert _ask(server, "PUT", "/b/k", b"2", create)[0] == 412
    match = {"x-goog-if-generation-match": headers["x-goog-generation"]}
    assert _ask(server, "PUT", "/b/k", b"3", match)[0] == 200
    assert _ask(server, "PUT", "/b/k", b"4", match)[0] == 412
    assert _ask(server, "DELETE", "/b/k", b"", match)[0] == 412
    assert _ask(server, "GET", "/b/k")[2] == b"3"
    assert _ask(server, "PUT", "/b/k", b"5", {"x-goog-if-generation-match": "x"})[0] == 400


def test_generations_rise_even_for_the_same_content(server: GcsServer) -> None:
    seen = [int(_ask(server, "PUT", "/b/k", b"same")[1]["x-goog-generation"]) for _ in range(5)]
    assert seen == sorted(set(seen))


def test_ranges_are_served_and_bad_ones_refused(server: GcsServer) -> None:
    _ask(server, "PUT", "/b/k", b"0123456789")
    for header, expected in (("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=8-99", b"89")):
        status, headers, body = _ask(server, "GET", "/b/k", headers={"Range": header})
        assert (status, body) == (206, expected)
        assert headers["content-range"].endswith("/10")
    assert _ask(server, "GET", "/b/k", headers={"Range": "bytes=10-"})[0] == 416


def test_pages_are_at_most_a_thousand_and_join_without_gap_or_repeat(server: GcsServer) -> None:
    names = [f"p/{i:04d}" for i in range(2 * MAX_PAGE + 1)] + [f"q{i:04d}/x" for i in range(5)]
    for name in names:
        server.buckets["b"][name] = _stored(server)
    for query, pattern, expected in (
        ("prefix=p%2F", "<Key>([^<]+)", names[: 2 * MAX_PAGE + 1]),
        ("delimiter=%2F&max-keys=2", "<Prefix>([^<]+)", ["p/", *[f"q{i:04d}/" for i in range(5)]]),
    ):
        found: list[str] = []
        token = ""
        while True:
            body = _ask(server, "GET", f"/b?list-type=2&{query}{token}")[2].decode()
            page = re.findall(pattern, body.split("</IsTruncated>")[1])
            assert len(page) <= MAX_PAGE
            found += page
            more = re.search("<NextContinuationToken>([^<]+)", body)
            if more is None:
                break
            token = f"&continuation-token={quote(more.group(1), safe='')}"
        assert found == expected


def test_multipart_rules_are_enforced(server: GcsServer) -> None:
    body = _ask(server, "POST", "/b/k?uploads=")[2].decode()
    upload = re.search("<UploadId>([^<]+)", body)
    assert upload is not None
    here = f"/b/k?uploadId={upload.group(1)}"
    tags = {
        n: _ask(server, "PUT", f"{here}&partNumber={n}", b"x" * size)[1]["etag"]
        for n, size in ((1, 5), (2, MIN_PART), (3, 7))
    }
    assert _ask(server, "PUT", f"{here}&partNumber=10001", b"x")[0] == 400
    assert b"EntityTooSmall" in _complete(server, here, [(1, tags[1]), (2, tags[2])])[2]
    assert b"InvalidPartOrder" in _complete(server, here, [(3, tags[3]), (2, tags[2])])[2]
    assert b"InvalidPart" in _complete(server, here, [(2, '"wrong"')])[2]
    assert _ask(server, "GET", "/b/k")[0] == 404
    assert _complete(server, here, [(2, tags[2]), (3, tags[3])])[0] == 200
    assert len(_ask(server, "GET", "/b/k")[2]) == MIN_PART + 7
    assert _ask(server, "DELETE", here)[0] == 404


def test_an_aborted_upload_leaves_nothing(server: GcsServer) -> None:
    body = _ask(server, "POST", "/b/k?uploads=")[2].decode()
    here = f"/b/k?uploadId={body.split('<UploadId>')[1].split('<')[0]}"
    assert _ask(server, "DELETE", here)[0] == 204
    assert _ask(server, "PUT", f"{here}&partNumber=1", b"x")[0] == 404
    assert not server.uploads


def test_unknown_names_are_refused(server: GcsServer) -> None:
    assert b"NoSuchBucket" in _ask(server, "GET", "/nope/k")[2]
    assert b"NoSuchKey" in _ask(server, "GET", "/b/nope")[2]
    assert _ask(server, "DELETE", "/b/nope")[0] == 404
    assert _ask(server, "GET", "/b?list-type=1")[0] == 501
    assert _ask(server, "GET", "/b?list-type=2&colour=3")[0] == 400
    assert _ask(server, "PUT", "/b/k", b"x", {"Content-MD5": "AAAA"})[0] == 400


def _complete(server: GcsServer, path: str, parts: list[tuple[int, str]]) -> Answer:
    inner = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in parts)
    return _ask(server, "POST", path, f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>".encode())


def _stored(server: GcsServer):
    from orch_fronts.buckets import StoredObject

    return StoredObject(
        data=b"", e_tag='"e"', generation=server.next_generation(), modified=0.0, metadata={}, content_type="text/plain"
    )


def _ask(server: GcsServer, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()
