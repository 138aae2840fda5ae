"""The count of queries in flight, by class and by client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.upstream.budget import Queue, count_end, count_start
from app.upstream.fair_queue import FairQueue

CLIENTS = ["192.0.2.0/24", "2001:db8::/64", None]


def new_queue() -> Queue:
    return Queue(FairQueue(most=10, most_of_client=5), most_in_flight=4, leaving=0.0)


def test_a_query_in_flight_counts_for_its_client_until_it_ends() -> None:
    queue = new_queue()
    for _ in range(2):
        queue.in_flight += 1
        count_start(queue, "192.0.2.0/24")
    count_end(queue, "192.0.2.0/24")
    assert (queue.in_flight, queue.in_flight_of) == (1, {"192.0.2.0/24": 1})


def test_the_services_own_query_counts_for_no_client() -> None:
    queue = new_queue()
    queue.in_flight += 1
    count_start(queue, None)
    assert (queue.in_flight, queue.in_flight_of) == (1, {})
    count_end(queue, None)
    assert queue.in_flight == 0


@given(st.lists(st.sampled_from(CLIENTS), max_size=30))
def test_a_client_without_a_query_in_flight_takes_no_memory(clients: list[str | None]) -> None:
    queue = new_queue()
    for client in clients:
        queue.in_flight += 1
        count_start(queue, client)
    assert sum(queue.in_flight_of.values()) == len([client for client in clients if client is not None])
    for client in clients:
        count_end(queue, client)
    assert (queue.in_flight, queue.in_flight_of) == (0, {})
