"""The clients of the benchmark read whole answers, and its view is routed for nobody else."""

import socket
import threading

import pytest
from django.core.management.base import CommandError
from django.urls import Resolver404, resolve

from config import bench_client, bench_submit, bench_views, checks

ANSWER = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\ncontent-length: 4\r\n\r\n{  }"


def send(line: socket.socket, pieces: list[bytes]) -> None:
    for piece in pieces:
        line.sendall(piece)


@pytest.mark.parametrize("size", [1, 7, len(ANSWER)])
def test_an_answer_is_read_to_its_end_however_it_comes(size: int) -> None:
    ours, theirs = socket.socketpair()
    pieces = [ANSWER[n : n + size] for n in range(0, len(ANSWER), size)]
    with ours, theirs:
        sender = threading.Thread(target=lambda: send(theirs, pieces))
        sender.start()
        assert bench_client.read(ours) == ANSWER
        sender.join()


def test_an_answer_that_breaks_off_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(ANSWER[:-1])
        with pytest.raises(OSError, match="closed"):
            bench_client.read(ours)


def test_the_bare_view_is_routed_for_a_benchmark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Resolver404):
        resolve(bench_views.PATH)
    assert (bench_views.urls(), checks.bench_route()) == ([], [])
    monkeypatch.setenv(bench_views.VARIABLE, "1")
    assert [url.name for url in bench_views.urls()] == ["bench-bare"]
    assert [error.id for error in checks.bench_route()] == ["config.E005"]


def test_there_is_no_figure_where_the_clients_were_what_was_measured() -> None:
    sides = {
        name: bench_submit.Side([100.0, 300.0, 200.0], busy=0.1) for name in ("submit", "bare")
    }
    assert bench_submit.result(sides)["ratio"] == 1.0
    sides["bare"].busy = bench_submit.BUSY_MAX + 0.01
    with pytest.raises(CommandError, match="of a core"):
        bench_submit.result(sides)
