"""HS_NAMESPACE: the settings of a prefix record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.value import Namespace, read_namespace, read_values
from tests.values import record


def read(*xml: str) -> Namespace:
    return read_namespace(record(*(("HS_NAMESPACE", one) for one in xml)))


@pytest.mark.parametrize(
    ("xml", "locs"),
    [
        ("<HS_NAMESPACE><locs>10.SERV/CROSSREF</locs></HS_NAMESPACE>", ("10.SERV/CROSSREF",)),
        # As Crossref documented it in 2011.
        (
            "<HS_NAMESPACE><DOI.RA>0.SERV/10.crossref</DOI.RA><locs>0.SERV/10.crossref</locs></HS_NAMESPACE>",
            ("0.SERV/10.crossref",),
        ),
        ("<n><locs>10.SERV/A</locs><locs> 10.SERV/B\n10.SERV/C </locs></n>", ("10.SERV/A", "10.SERV/B", "10.SERV/C")),
        ("<namespace><locs/></namespace>", ()),
        ("<namespace/>", ()),
        ("<n><other><locs>10.SERV/A</locs></other></n>", ()),
    ],
)
def test_locs_name_the_service_handles(xml: str, locs: tuple[str, ...]) -> None:
    assert read(xml).locs == locs


@pytest.mark.parametrize(
    ("attribute", "expected"), [("", False), ('no_nslocs="true"', True), ('no_nslocs="false"', False)]
)
def test_no_nslocs_stops_the_inheritance_of_locations(attribute: str, expected: bool) -> None:
    assert read(f"<n><locs {attribute}>10.SERV/A</locs></n>").no_nslocs is expected


def test_contact_status_and_status_message_are_texts() -> None:
    found = read(
        "<n><contact> a@example.org </contact><status>Inactive</status><statusmsg>Moved <b>away</b>.</statusmsg></n>"
    )
    assert (found.contact, found.status_message, found.is_inactive) == ("a@example.org", "Moved away.", True)


@pytest.mark.parametrize("status", ["active", "", "inactiv", "not inactive"])
def test_only_inactive_is_inactive(status: str) -> None:
    assert not read(f"<n><status>{status}</status></n>").is_inactive


def test_hs_serv_values_name_service_handles_too() -> None:
    found = read_namespace(record(("HS_SERV", " 10.SERV/DATACITE "), ("HS_SERV", " "), ("URL", "http://a/")))
    assert found.services == ("10.SERV/DATACITE",) and found.locs == ()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([("EMAIL", "b@example.org")], "b@example.org"),
        ([("EMAIL", ""), ("EMAIL", "c@example.org")], "c@example.org"),
        ([("EMAIL", "b@example.org"), ("HS_NAMESPACE", "<n><contact>a@example.org</contact></n>")], "a@example.org"),
        ([], None),
    ],
)
def test_the_contact_is_the_namespace_s_or_an_e_mail_value(values: list[tuple[str, str]], expected: str | None) -> None:
    assert read_namespace(record(*values)).contact == expected


def test_the_well_formed_value_of_the_lowest_index_counts() -> None:
    texts = "garbage", "<n>", "<n><locs>10.SERV/A</locs></n>", "<n><locs>10.SERV/B</locs></n>"
    assert read(*texts).locs == ("10.SERV/A",)
    values = [
        {"index": 9 - index, "type": "HS_NAMESPACE", "data": {"format": "string", "value": text}}
        for index, text in enumerate(texts)
    ]
    assert read_namespace(read_values(json.dumps(values).encode())).locs == ("10.SERV/B",)


@pytest.mark.parametrize(
    "garbage",
    ["", "inactive", "<", "<n><status>inactive</n>", "<!DOCTYPE n><n><status>inactive</status></n>", "<a>" * 20_000],
)
def test_a_malformed_value_is_ignored(garbage: str) -> None:
    assert read(garbage) == Namespace()


def test_data_that_is_not_a_string_is_ignored() -> None:
    values = [
        {"index": 1, "type": "HS_NAMESPACE", "data": data} for data in (None, 7, {"format": "base64", "value": "AA=="})
    ]
    assert read_namespace(read_values(json.dumps(values).encode())) == Namespace()


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for xml in (text, f"<n>{text}</n>", f"<n><locs>{text}</locs></n>"):
        assert all(
            handle == handle.strip()
            for handle in read_namespace(record(("HS_NAMESPACE", xml.encode("utf-8", "replace").decode()))).locs
        )
