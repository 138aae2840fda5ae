"""Names to ask for, and the records made from them."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from bench.names import path_of, read_names, synthetic, zipf
from bench.records import answer_of, entry_of, target_of, values_sized
from handle_protocol.referral import read_answer

pytestmark = pytest.mark.repository


def test_a_list_is_read_without_what_is_no_doi_name_or_there_already(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("10.1000/a\n\nno name\n10.1000/A\n10.1000/b c\n10.1000/\x00\n", encoding="utf-8")
    assert read_names(file) == ["10.1000/a", "10.1000/b c"]


def test_a_list_may_be_compressed_and_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "names.txt.gz"
    file.write_bytes(gzip.compress(b"10.1000/a\n10.1000/b\n"))
    assert read_names(file, most=1) == ["10.1000/a"]


@pytest.mark.parametrize(
    ("name", "path"), [("10.1000/182", "/10.1000/182"), ("10.1000/a<b>#c?d%é", "/10.1000/a%3Cb%3E%23c%3Fd%25%C3%A9")]
)
def test_a_path_is_percent_encoded(name: str, path: str) -> None:
    assert path_of(name) == path


def test_made_up_names_differ() -> None:
    assert len(set(synthetic(20_000))) == 20_000


def test_zipf_asks_for_few_names_often_and_for_the_same_ones_each_time() -> None:
    names = synthetic(1_000)
    asked = zipf(names, 20_000)
    (_, most), (_, second) = Counter(asked).most_common(2)
    assert asked == zipf(names, 20_000)
    # 1/n over 1,000 ranks: the first name has 1/7.49 of all questions, the second half of that.
    assert most == pytest.approx(20_000 / 7.49, rel=0.1)
    assert second == pytest.approx(most / 2, rel=0.15)


def test_the_stand_in_s_answer_is_one_that_the_proxy_takes() -> None:
    assert read_answer(answer_of("10.1000/A"), "10.1000/a").values == entry_of("10.1000/A", 0.0).answer.values


def test_every_spelling_of_a_name_leads_to_the_same_target() -> None:
    assert target_of("10.1000/abc") == target_of("10.1000/ABC") != target_of("10.1000/abd")


@pytest.mark.parametrize("size", [300, 1_200])
def test_a_record_has_the_size_that_was_asked_for(size: int) -> None:
    assert len(values_sized("10.1000/182", size)) == size
