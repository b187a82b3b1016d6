"""What must hold for the text of any page, and pages to try: trees with hidden parts, and plain nonsense."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from fermix.agent.documents.page import MOST_CHARS, to_markdown
from fermix.visible import only_seen

HIDDEN = "CANARY"
URL = "https://e.example/folder/page"
LINK = re.compile(r"\]\(([^)\s]*)")


def check_any_bytes(data: bytes, charset: str = "") -> str:
    """Whatever comes, a text comes out: valid, bounded, without what nobody sees. Raises: AssertionError."""
    text = to_markdown(data, URL, charset)
    assert text.encode("utf-8").decode("utf-8") == text
    assert len(text) <= MOST_CHARS
    assert only_seen(text) == text
    return text


def check_tree(html: str) -> None:
    """Of a page from TREES nothing hidden is in the text, and every link is whole. Raises: AssertionError."""
    text = check_any_bytes(html.encode("utf-8"), "utf-8")
    assert HIDDEN not in text
    assert all(link.startswith(("http://", "https://")) for link in LINK.findall(text))


WORDS = st.text(st.sampled_from("abc äß漢\u200b\u202e\U000e0041\u00a0&#;=*_`~"), max_size=12).map(
    lambda text: text.replace("&", "&amp;")
)
CONCEALED = st.sampled_from(
    [
        f"<!-- {HIDDEN} -->",
        f"<script>x('{HIDDEN}')</script>",
        f"<style>.x{{content:'{HIDDEN}'}}</style>",
        f"<div hidden>{HIDDEN}</div>",
        f"<span style='display: none'>{HIDDEN}</span>",
        f"<div HIDDEN=''><b>{HIDDEN}</b></div>",
        f"<span style='Visibility:Hidden !important'>{HIDDEN}</span>",
        f"<div aria-hidden=true>{HIDDEN}</div>",
        f"<template><p>{HIDDEN}</p></template>",
        f"<noscript>{HIDDEN}</noscript>",
        f"<svg><text>{HIDDEN}</text></svg>",
        f"<span style='font-size:0px'>{HIDDEN}</span>",
        f"<div style='position:absolute;left:-9999px'>{HIDDEN}</div>",
        f"<span class='a away b'>{HIDDEN}</span>",
        f"<div id=gone>{HIDDEN}</div>",
        f"<input type=hidden value={HIDDEN}>",
        f"<a href='javascript:{HIDDEN}'>x</a>",
        f"<img src={HIDDEN}>",
        f"<b title={HIDDEN} data-x={HIDDEN}>y</b>",
        f"<a href='data:text/html,{HIDDEN}'>z</a>",
        f"<?php {HIDDEN} ?>",
        f"<![CDATA[{HIDDEN}]]>",
    ]
)
TAGS = st.sampled_from(
    [
        "p",
        "div",
        "b",
        "i",
        "h1",
        "h3",
        "ul",
        "ol",
        "li",
        "table",
        "tr",
        "td",
        "th",
        "pre",
        "code",
        "blockquote",
        "main",
        "article",
        "section",
        "span",
        "a",
        "details",
        "dl",
        "dt",
        "dd",
        "br",
        "hr",
        "sup",
        "font",
        "center",
        "x-y",
    ]
)
HREFS = st.sampled_from(
    ["", " href='/x(1)'", " href='?a=b c'", " href=//o.example", " href='http://[bad'", " href='mailto:a@b'"]
)


def _element(tag: str, href: str, children: list[str], ends: bool) -> str:
    return f"<{tag}{href if tag == 'a' else ''}>{''.join(children)}{f'</{tag}>' if ends else ''}"


NODES = st.recursive(
    WORDS | CONCEALED,
    lambda inner: st.builds(
        _element,
        TAGS,
        HREFS,
        st.lists(inner, max_size=5),
        st.integers(0, 9).map(bool),
    ),
    max_leaves=25,
)
RULES = "<style>@media print{.b{display:none}} .away,.x{display:none} #gone { visibility : hidden }</style>"
TREES = st.lists(NODES, max_size=6).map(lambda nodes: f"<title>t</title>{RULES}<body>{''.join(nodes)}")

PIECES = st.one_of(
    st.sampled_from(
        [
            b"<",
            b">",
            b"</",
            b"<!--",
            b"-->",
            b"<table><tr><td>",
            b"<ul><li>",
            b"<pre>",
            b"<a href=",
            b"&#x",
            b"\0",
            b"<script>",
            b"</script>",
            b"<style>a{",
            b"<title>",
            b"<base href=//x>",
            b"<ol start=9999999999>",
            b"<td colspan=99999 rowspan=0>",
            b"\xff\xfe",
            b"<![CDATA[",
            b"<main>",
            b"<textarea>",
            b"<plaintext>",
        ]
    ),
    st.binary(max_size=12),
)
SOUP = st.lists(PIECES, max_size=40).map(b"".join)
LABELS = st.sampled_from(
    ["", "utf-8", "latin-1", "utf-16", "shift_jis", "iso-2022-jp", "utf-7", "idna", "zip", "\0", "big5"]
)
