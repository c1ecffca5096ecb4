import gzip
import hashlib
import io
import socket
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyterrier as pt
import pytest

from pyterrier_cascade.datasets import SquadFile, TrecQA, WikiQA
from pyterrier_cascade.datasets.download import DataFile, download
from pyterrier_cascade.datasets.files import DataFolder
from tests.datasets.as2_files import wikiqa_text

SPLITS = ("train", "dev", "test")
CONTENT = b"line one\nline two\n" * 1000


class Server(ThreadingHTTPServer):
    """Serves ``pages`` by path; of a path in ``cut`` only half arrives. ``asked`` lists the requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages, self.cut, self.asked = {}, set(), []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path not in self.server.pages:
            return self.send_error(404)
        data = self.server.pages[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if self.path in self.server.cut else data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def data_file(server, path="/f.txt", content=CONTENT, **more):
    return DataFile("f.txt", server.url(path), hashlib.sha256(content).hexdigest(), **more)


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_good_file_with_a_progress_bar(server, tmp_path, capsys):
    server.pages["/f.txt"] = CONTENT
    download([data_file(server)], tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / "f.txt").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["f.txt"]
    assert "downloading f.txt: 100%" in capsys.readouterr().err


def test_gzipped_files_are_unpacked(server, tmp_path):
    server.pages["/f.txt.gz"] = gzip.compress(CONTENT)
    download([data_file(server, "/f.txt.gz")], tmp_path)
    assert (tmp_path / "f.txt").read_bytes() == CONTENT


def test_only_the_named_member_leaves_a_zip_file(server, tmp_path):
    server.pages["/f.zip"] = zipped(**{"../../escape.txt": b"x", "in/f.txt": CONTENT, "f.txt": b"not this"})
    folder = tmp_path / "a" / "b" / "c"
    download([data_file(server, "/f.zip", member="in/f.txt")], folder)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "f.txt"]
    assert (folder / "f.txt").read_bytes() == CONTENT


def failing(tmp_path, file, error):
    with pytest.raises(error) as err:
        download([file], tmp_path / "to")
    assert not (tmp_path / "to").exists()
    return str(err.value)


HELP = "try again, or get it yourself and name its folder with folder=... or PTC_DATA"


def test_address_not_found(server, tmp_path):
    message = failing(tmp_path, data_file(server), FileNotFoundError)
    url = server.url("/f.txt")
    assert message == f"f.txt could not be downloaded from {url} (HTTP Error 404: Not Found); {HELP}"


def test_no_server(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/f.txt"
    message = failing(tmp_path, DataFile("f.txt", url, ""), FileNotFoundError)
    assert message.startswith(f"f.txt could not be downloaded from {url} (<urlopen error")
    assert message.endswith(HELP)


def test_connection_cut_halfway_and_then_whole(server, tmp_path):
    server.pages["/f.txt"] = CONTENT
    server.cut.add("/f.txt")
    message = failing(tmp_path, data_file(server), FileNotFoundError)
    assert "could not be downloaded" in message and "9000" in message
    server.cut.clear()
    download([data_file(server)], tmp_path / "to")
    assert (tmp_path / "to" / "f.txt").read_bytes() == CONTENT


def test_wrong_checksum(server, tmp_path):
    server.pages["/f.txt"] = b"other"
    message = failing(tmp_path, data_file(server), ValueError)
    seen, wanted = (hashlib.sha256(data).hexdigest() for data in (b"other", CONTENT))
    assert message == (
        f"f.txt from {server.url('/f.txt')} has sha256 {seen} instead of {wanted}; nothing was kept. Try again; if "
        "the official file has changed, get it yourself and name its folder with folder=... or PTC_DATA"
    )


@pytest.mark.parametrize(
    "path, content, member",
    [
        ("/f.zip", b"<html>not a zip file</html>", "in/f.txt"),
        ("/f.zip", zipped(other=CONTENT), "in/f.txt"),
        ("/f.zip", zipped(**{"in/f.txt": CONTENT})[:80], "in/f.txt"),
        ("/f.txt.gz", gzip.compress(CONTENT)[:50], None),
        ("/f.txt.gz", CONTENT, None),
    ],
    ids=["page", "no member", "cut zip", "cut gzip", "no gzip"],
)
def test_packed_file_that_cannot_be_unpacked(server, tmp_path, path, content, member):
    server.pages[path] = content
    message = failing(tmp_path, data_file(server, path, member=member), ValueError)
    assert message.startswith(f"{server.url(path)} delivered no f.txt that can be unpacked (")
    assert message.endswith("); nothing was kept")


@pytest.fixture
def wikiqa_server(server, monkeypatch):
    """The three splits in one zip file, and WikiQA's address pointing to it."""
    members = {f"WikiQACorpus/{f.name}": wikiqa_text((s, "yes", 1), (s, "no", 0)) for s, f in wikiqa_files()}
    server.pages["/WikiQACorpus.zip"] = zipped(**members)
    checksums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in members.items()}
    moved = {s: replace(f, url=server.url("/WikiQACorpus.zip"), sha256=checksums[f.member]) for s, f in wikiqa_files()}
    monkeypatch.setattr(WikiQA, "data_folder", DataFolder(("wikiqa",), moved))
    return server


def wikiqa_files():
    return WikiQA.data_folder.files.items()


def test_one_download_serves_all_splits_and_later_uses(wikiqa_server, tmp_path):
    for split in ("test", "dev", "train", "test"):
        dataset = pt.get_dataset(f"as2:wikiqa/raw/{split}")
        assert dataset.get_topics()["qid"].tolist() == [f"Q-{split}"]
    assert wikiqa_server.asked == ["/WikiQACorpus.zip"]
    kept = {path.name for path in (tmp_path / "home" / "pyterrier_cascade" / "wikiqa").iterdir()}
    assert kept == {"WikiQA-train.tsv", "WikiQA-dev.tsv", "WikiQA-test.tsv"}


def test_making_a_dataset_downloads_nothing(wikiqa_server):
    dataset = pt.get_dataset("as2:wikiqa/test")
    assert repr(dataset) and dataset.info_url() and repr(dataset.text_loader())
    assert wikiqa_server.asked == []


def test_official_addresses_and_checksums():
    for split, file in wikiqa_files():
        assert file.member == f"WikiQACorpus/WikiQA-{split}.tsv" and file.url.endswith("WikiQACorpus.zip")


def test_checksums_are_those_of_the_real_files(shared_data):
    for kind, keys in ((WikiQA, SPLITS), (TrecQA, SPLITS), (SquadFile, ("new_wiki_v1.0",))):
        for key in keys:
            content = gzip.decompress(kind.data_folder.locate(key, shared_data).read_bytes())
            assert hashlib.sha256(content).hexdigest() == kind.data_folder.files[key].sha256
