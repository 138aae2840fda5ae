"""The report and the chart."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.chart import Bar, draw
from bench.cold import divided
from bench.findings import Claim, Section, Table
from bench.nginx import CACHING, CONSTANT
from bench.report import number, write_report

pytestmark = pytest.mark.repository


def test_a_report_holds_machine_claims_tables_and_what_is_missing() -> None:
    section = Section(
        title="Speed",
        method="By hand.",
        tables=(Table(("Load", "rate"), (("hot", "7"),)),),
        claims=(Claim("faster", 1.4, ">=", 1.5, "x", (1.2, 1.6)), Claim("small", 3, "<=", 4, "B")),
        not_measured=("not measured: wrk not found",),
    )
    report = write_report("2024-01-01", [("processor", "one")], [section])
    assert report == (
        "# Results\n\n"
        "One run of `make bench` on 2024-01-01. README.md says what is measured and how to read it.\n\n"
        "- processor: one\n\n"
        "## In short\n\n"
        "| Goal | measured | wanted | reached |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| faster | 1.40x (1.20 to 1.60) | at least 1.50x | **no** |\n"
        "| small | 3 B | at most 4 B | yes |\n\n"
        "## Speed\n\nBy hand.\n\n"
        "| Load | rate |\n| --- | ---: |\n| hot | 7 |\n\n"
        "- not measured: wrk not found\n"
    )


@pytest.mark.parametrize(
    ("relation", "measured", "holds"), [(">=", 1.0, True), (">=", 0.9, False), ("<=", 1.0, True), ("<=", 1.1, False)]
)
def test_a_claim_holds_on_its_side_of_the_bound(relation: str, measured: float, holds: bool) -> None:
    assert Claim("it", measured, relation, 1.0).holds is holds  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1.5, "1.50"), (1234.0, "1,234"), (1234.5, "1,234")])
def test_a_number_has_the_digits_that_say_something(value: float, text: str) -> None:
    assert number(value) == text


def test_the_chart_is_xml_with_a_bar_as_long_as_its_share_of_the_greatest_round() -> None:
    chart = ElementTree.fromstring(draw("Hot & fast", [Bar("doi-proxy", 150, 100, 200), Bar("a <b>", 50, 50, 50)]))
    bars = chart.findall("{http://www.w3.org/2000/svg}rect")
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert [bar.attrib["class"] for bar in bars] == ["ours", "other"]
    assert widths[0] / widths[1] == pytest.approx(150 / 50, rel=0.01)


def test_the_chart_follows_the_colour_scheme_of_the_reader() -> None:
    assert "prefers-color-scheme: dark" in draw("Rates", [])


def test_spans_add_up_to_the_whole() -> None:
    spans = divided({"parse": 1.0, "lookup": 1.0, "queue": 1.0, "ask": 5.0, "decode": 2.0, "store": 1.0}, 12.0)
    assert spans["ask"] == 3.0
    assert sum(spans.values()) == 12.0


@pytest.mark.parametrize("configuration", [CONSTANT, CACHING])
def test_an_nginx_configuration_takes_port_upstream_and_user(configuration: str) -> None:
    filled = configuration % {"port": 8000, "upstream": "127.0.0.1:9", "user": ""}
    assert "listen 127.0.0.1:8000;" in filled
    assert filled.count("{") == filled.count("}")
