"""What happens to a service is an event, and the first line of /status, /readyz and the log names its cause."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.fake_upstream import EVERY_NAME
from tests.world.world import World

SEEN: Final[dict[str, Any]] = {"status_networks": "0.0.0.0/0, ::/0"}


def read(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("/status?format=json").json
    return found


def list_events(world: World, kind: str) -> list[tuple[str, str, bool]]:
    """The causes of the events of a kind, the oldest first, and whether each has ended."""
    events = reversed(read(world)["events"])
    return [(event["cause"], event["sign"], event["until"] is not None) for event in events if event["kind"] == kind]


def read_metric(world: World, name: str) -> float:
    """The sum of the samples of a metric."""
    families = text_string_to_metric_families(world.get("/metrics").body.decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def ask(world: World, names: int, label: str) -> None:
    for number in range(names):
        world.get(f"/10.5555/{label}-{number}")


def test_a_login_portal_is_the_first_line_everywhere_from_the_third_answer_on() -> None:
    with World(**SEEN) as world:
        world.get("/10.5555/before")
        world.upstream.fault(EVERY_NAME, "html")
        ask(world, 3, "new")
        found = read(world)["summary"]
        assert found["sentence"].startswith("127.0.0.1 has given no usable answer since ")
        assert ": the answers cannot be read (a page of HTML, from a login portal?). " in found["sentence"]
        ready = world.get("/readyz").json
        assert (ready["ready"], ready["problems"]) == (True, ["DoiProxyUpstreamBreakerOpen"])
        assert ready["sentence"].startswith("An upstream gives no usable answer: the answers cannot be read (a page ")
        (line,) = [line for line in world.log if " is down: " in line]
        assert line.startswith("WARNING ") and "; open the address of the upstream from this machine: a login" in line
        assert read_metric(world, "doi_proxy_upstream_portal") == 1
        world.upstream.fault(EVERY_NAME, "delay", seconds=0.0)
        world.sleep(20)
        world.get("/10.5555/after")
        assert list_events(world, "outage") == [("upstream-bad-answer", "page", True)]
        assert read_metric(world, "doi_proxy_upstream_portal") == 0
        world.sleep(600)
        assert world.get("/readyz").json["sentence"] == "Working."


def test_a_name_whose_record_is_damaged_is_not_an_outage() -> None:
    with World(**SEEN) as world:
        for number in range(9):
            world.upstream.fault(f"10.5555/damaged-{number}", "html")
            world.get(f"/10.5555/damaged-{number}")
        assert list_events(world, "outage") == []
        assert not [line for line in world.log if " is down: " in line]


def test_four_faults_in_a_row_are_four_events_with_their_seconds_and_causes() -> None:
    with World(upstream_breaker_cooldown=3.0, **SEEN) as world:
        world.get("/10.5555/before")
        for kind, options in (("reset", {}), ("html", {}), ("status", {"status": 503}), ("hang", {})):
            world.upstream.fault(EVERY_NAME, kind, **options)
            for number in range(9):
                world.client().ask(f"/10.5555/{kind}-{number}", {})
                world.sleep(3)
        world.upstream.fault(EVERY_NAME, "delay", seconds=0.0)
        world.sleep(30)
        world.get("/10.5555/after")
        world.sleep(2)
        assert list_events(world, "outage") == [
            ("upstream-unreachable", "", True),
            ("upstream-bad-answer", "page", True),
            ("upstream-refused", "503", True),
            ("upstream-timeout", "", True),
        ]
        assert len([line for line in world.log if " is still down, for another reason " in line]) == 3


def test_a_pause_is_an_event_with_its_cause() -> None:
    with World(**SEEN) as world:
        world.get("/10.5555/before")
        world.upstream.fault(EVERY_NAME, "status", status=429, retry_after="20", count=1)
        world.get("/10.5555/new")
        assert read(world)["summary"]["sentence"].startswith("127.0.0.1 requested a pause: queries are refused (HTTP ")
        world.sleep(30)
        world.get("/10.5555/after")
        world.sleep(2)
        assert list_events(world, "pause") == [("upstream-refused", "429", True)]


def test_the_sentence_has_the_cause_between_two_pauses_too() -> None:
    with World(**SEEN) as world:
        # Without Retry-After, the first pause lasts a second.
        world.upstream.fault(EVERY_NAME, "status", status=429)
        for number in range(4):
            world.get(f"/10.5555/{number}")
            world.sleep(0.8)
            assert ": queries are refused (HTTP status 429). " in read(world)["summary"]["sentence"]


def test_a_reload_that_failed_is_an_event_and_the_first_line_until_one_succeeds() -> None:
    with World(**SEEN) as world:
        world.get("/10.5555/before")
        for instance in world.instances:
            instance.process.context.run(instance.lifecycle.reload, None)
        world.sleep(2)
        assert read(world)["summary"]["sentence"].startswith("The last reload failed, and previous settings or files ")
        assert list_events(world, "reload-failed") == [("", "", False)]
        assert read_metric(world, "doi_proxy_reload_failed") == 1
        world.reload()
        world.sleep(2)
        assert read(world)["summary"]["problems"] == []
        assert list_events(world, "reload") == [("", "", False)]
        assert read_metric(world, "doi_proxy_reload_failed") == 0


def test_a_clock_that_was_set_is_an_event_and_the_first_line_for_ten_minutes() -> None:
    with World(**SEEN) as world:
        world.get("/10.5555/before")
        world.set_clock(-7_200)
        world.sleep(2)
        (event,) = [event for event in read(world)["events"] if event["kind"] == "clock"]
        assert (event["detail"], event["count"]) == ("back", 7_200)
        assert read_metric(world, "doi_proxy_clock_steps_total") == 1
        assert read(world)["summary"]["sentence"].startswith("The clock of this machine was set. ")
        world.sleep(600)
        assert read(world)["summary"]["problems"] == []


def test_a_failure_of_the_store_shorter_than_a_second_is_an_event() -> None:
    with World(store_url="valkey://127.0.0.1:6379/0", **SEEN) as world:
        world.get("/10.5555/before")
        world.valkey.stop()
        world.get("/10.5555/new")
        world.valkey.start()
        world.sleep(60)
        assert list_events(world, "store") == [("store-unreachable", "", True)]
