"""The server shows a folder to who knows its token, and nothing else to anybody."""

from __future__ import annotations

import http.client
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Chromium, chromium_path

from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.lab.serving import LOOPBACK, RunServer
from treadle.page.html import data_in


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunServer]:
    folder = tmp_path / "runs"
    (folder / "inner").mkdir(parents=True)
    given = folder / "given.txt"
    given.write_text(show_program(demo_program()))
    assert main(["schedule", str(given), "-o", str(folder / "inner" / "ours.txt")]) == 0
    (folder / "notes.md").write_text("not a run")
    (tmp_path / "secret.txt").write_text(show_program(demo_program()))
    with RunServer(str(folder)) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def ask(server: RunServer, path: str, host: str | None = None, **words: str) -> tuple[int, str]:
    line = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=30)
    headers = {} if host is None else {"Host": host}
    line.request("GET", f"{path}?{urllib.parse.urlencode(words)}", headers=headers)
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return answer.status, text


def test_the_list_names_what_has_a_page(server: RunServer) -> None:
    status, text = ask(server, "/", token=server.token)
    assert status == 200
    assert "given.txt" in text
    assert "inner/ours.txt" in text
    assert "notes.md" not in text
    assert "http-equiv='refresh'" in text


def test_a_file_becomes_a_page_and_two_are_compared(server: RunServer) -> None:
    status, text = ask(server, "/report", token=server.token, file="given.txt")
    assert status == 200
    assert data_in(text)["title"] == "given.txt"
    status, text = ask(server, "/diff", token=server.token, a="given.txt", b="inner/ours.txt")
    assert status == 200
    assert data_in(text)["kind"] == "diff"


def test_the_two_newest_are_compared_unless_others_are_chosen(server: RunServer) -> None:
    text = ask(server, "/", token=server.token)[1]
    newest = [name for name, kind, *_ in server.runs() if kind == "program"][:2]
    assert re.findall(r"<option selected>(.*?)</option>", text) == newest[::-1]


def test_the_list_does_not_renew_itself_under_the_hands_of_who_chooses(server: RunServer) -> None:
    if chromium_path() is None:
        pytest.skip("no Chromium: the list was not used in a browser")
    with Chromium() as browser:
        tab = browser.open(f"http://{LOOPBACK}:{server.server_port}/?token={server.token}")
        tab.evaluate("window.since = 1")
        event = "new Event('input', {bubbles: true})"
        tab.evaluate(f"document.querySelector('select').dispatchEvent({event})")
        assert tab.evaluate("chosen") is True
        tab.wait("document.querySelectorAll('table tbody tr').length === 2")
        assert tab.complaints() == []


def test_a_new_file_is_there_at_once(server: RunServer) -> None:
    Path(server.folder, "later.txt").write_text(show_program(demo_program()))
    assert "later.txt" in ask(server, "/", token=server.token)[1]


@pytest.mark.parametrize("token", ["", "x", "é"])
def test_nothing_is_told_without_the_token(server: RunServer, token: str) -> None:
    status, text = ask(server, "/", token=token)
    assert status == 403
    assert "given.txt" not in text
    assert server.token not in text


def test_another_name_of_the_machine_is_refused(server: RunServer) -> None:
    assert ask(server, "/", host="evil.example:80", token=server.token)[0] == 403


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "none.txt", "inner", ""])
def test_only_files_of_the_folder_are_served(server: RunServer, name: str) -> None:
    status, text = ask(server, "/report", token=server.token, file=name)
    assert status == 400
    assert "Traceback" not in text


def test_what_is_wrong_with_a_request_is_one_answer(server: RunServer) -> None:
    assert ask(server, "/report", token=server.token)[0] == 400
    assert ask(server, "/nothing", token=server.token)[0] == 400
    assert ask(server, "/report", token=server.token, file="notes.md")[0] == 400


def test_it_listens_on_this_machine_only(server: RunServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with RunServer(server.folder) as other:
        assert other.token != server.token


def test_the_command_says_what_it_would_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.txt").write_text(show_program(demo_program()))
    assert main(["serve", str(tmp_path), "--check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in said["runs"]] == ["p.txt"]
    assert said["address"].startswith("http://127.0.0.1:")
    assert main(["serve", str(tmp_path / "none")]) == 2
    assert main(["serve", str(tmp_path), "--port", "70000"]) == 2
    assert "Traceback" not in capsys.readouterr().err
