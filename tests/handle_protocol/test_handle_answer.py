"""Reading answers of the handle API: which are valid, which are refused, and which errors are raised."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.errors import HandleProtocolError, ServerRefused, UnusableAnswer
from handle_protocol.referral import Answer, ResponseCode, read_answer
from handle_protocol.value import read_values, write_values
from tests.table import table

NAME = "10.1000/182"
URL = {"index": 1, "type": "URL", "data": {"format": "string", "value": "http://www.doi.org/hb.html"}, "ttl": 86400}


def answer(**members: object) -> bytes:
    return json.dumps({"responseCode": 1, "handle": NAME, "values": [URL], **members}).encode()


def test_a_record_keeps_its_values_unchanged_except_for_white_space() -> None:
    body = b'{ "responseCode": 1, "handle": "10.1000/182",\n'
    body += b' "values": [ {"index":1, "type":"X", "data":"a b\\u00e9", "ttl": 1.0e2, "new": [1E3 ] } ] }'
    assert read_answer(body, NAME) == Answer(
        ResponseCode.SUCCESS, b'[{"index":1,"type":"X","data":"a b\\u00e9","ttl":1.0e2,"new":[1E3]}]'
    )


@pytest.mark.parametrize(
    ("code", "expected"), [(100, ResponseCode.HANDLE_NOT_FOUND), (200, ResponseCode.VALUES_NOT_FOUND)]
)
def test_not_found_and_no_values_are_answers(code: int, expected: ResponseCode) -> None:
    body = json.dumps({"responseCode": code, "handle": NAME}).encode()
    assert read_answer(body, NAME) == Answer(expected)


def test_success_without_values_becomes_values_not_found() -> None:
    assert read_answer(answer(values=[]), NAME) == Answer(ResponseCode.VALUES_NOT_FOUND)


def test_the_echoed_name_may_differ_in_the_case_of_ascii_letters() -> None:
    assert read_answer(answer(handle="10.1000/Abc"), "10.1000/aBC").code is ResponseCode.SUCCESS


def test_a_prefix_may_be_echoed_as_its_handle() -> None:
    assert read_answer(answer(handle="0.NA/10.1000"), "10.1000").code is ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [0, 2, 3, 5, 301, 402, 999, -1])
def test_another_response_code_is_a_refusal(code: int) -> None:
    with pytest.raises(ServerRefused, match=f"response code {code}\\.") as caught:
        read_answer(json.dumps({"responseCode": code, "message": "no room"}).encode(), NAME)
    assert (caught.value.response_code, caught.value.detail) == (code, "no room")


@table(
    "body",
    [
        b"",
        b"\x00\xff{not json",
        b"<!doctype html><title>captcha</title>",
        b"[]",
        b"null",
        b"{}",
        b'{"responseCode":"1","handle":"10.1000/182","values":[]}',
        b'{"responseCode":1,"values":[]}',
        b'{"responseCode":1,"handle":"10.1000/182"}',
        b'{"responseCode":1,"handle":"10.1000/182","values":{"index":1}}',
        b'{"responseCode":1,"handle":"10.1000/182","values":[1]}',
        b'{"responseCode":1,"handle":"10.1000/182","values":[{"type":"URL","data":"x"}]}',
        b'{"responseCode":1,"handle":"10.1000/182","values":[{"index":"1","type":"URL"}]}',
        b'{"responseCode":1,"handle":"10.1000/182","values":[{"index":1,"type":7}]}',
        b'{"responseCode":1,"handle":"10.9999/other","values":[]}',
        b'{"responseCode":100,"handle":"10.9999/other"}',
        b'{"responseCode":1,"handle":"x","values":' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"responseCode":1,"handle":"10.1000/182","values":[' + b'{"a":' * 20000 + b"1" + b"}" * 20000 + b"]}",
    ],
)
def test_a_body_that_does_not_answer_the_question_is_invalid(body: bytes) -> None:
    with pytest.raises(UnusableAnswer):
        read_answer(body, NAME)


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_our_errors(body: bytes) -> None:
    with pytest.raises(HandleProtocolError):
        read_answer(body, NAME)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["index", "type", "data", "ttl", "timestamp", "references", "x"]), json_values),
        max_size=3,
    )
)
def test_any_values_raise_only_our_errors_and_valid_ones_round_trip(values: list[object]) -> None:
    try:
        read = read_answer(answer(values=values), NAME)
    except HandleProtocolError:
        return
    assert json.loads(read.values) == values
    assert write_values(read_values(read.values)) == read.values
