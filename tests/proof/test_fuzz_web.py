"""A hundred thousand addresses and pages, by the judges that the short tests use too."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.errors import FermixError
from fermix.public import BODY_BYTES, _content_type, _unpacking
from tests.judges.addresses import ADDRESSES, URLS, check_number, check_url
from tests.judges.pages import LABELS, SOUP, TREES, check_any_bytes, check_tree

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3_600)]

MANY = settings(max_examples=100_000, deadline=None, suppress_health_check=list(HealthCheck))
SOME = settings(MANY, max_examples=50_000)


@MANY
@given(ADDRESSES)
def test_no_number_is_public_that_is_not(text: str) -> None:
    check_number(text)


@MANY
@given(URLS)
def test_no_address_is_let_through_that_somebody_reads_otherwise(url: str) -> None:
    check_url(url)


@SOME
@given(TREES)
def test_no_tree_lets_hidden_words_through(html: str) -> None:
    check_tree(html)


@SOME
@given(SOUP, LABELS)
def test_any_bytes_give_some_text(data: bytes, label: str) -> None:
    check_any_bytes(data, label)


@MANY
@given(st.sampled_from(["gzip", "deflate", "", "br"]), st.binary(max_size=200), st.booleans(), st.integers(1, 64))
def test_any_body_is_unpacked_within_its_bound_or_refused(encoding: str, data: bytes, packed: bool, most: int) -> None:
    body = gzip.compress(data * 50) if packed else data
    try:
        unpack = _unpacking(encoding)
        pieces = [unpack(body[at : at + 20], most) for at in range(0, len(body), 20)]
    except FermixError:
        return
    assert all(len(piece) <= most <= BODY_BYTES for piece in pieces)


@MANY
@given(st.text(max_size=60))
def test_any_type_is_read(header: str) -> None:
    media_type, charset = _content_type(header)
    assert (media_type + charset).isascii()
