"""A page as Markdown: what is kept, what is left out, and that nothing breaks it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings

from fermix.agent.documents.charset import decoded, known
from fermix.agent.documents.page import MOST_DEPTH, to_markdown
from tests.judges.pages import HIDDEN, LABELS, SOUP, TREES, check_any_bytes, check_tree

URL = "https://e.example/a/page"
TRIED = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))


def markdown(html: str) -> str:
    return to_markdown(html.encode("utf-8"), URL, "utf-8")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>A</h1><h3>B</h3>", "# A\n\n### B"),
        ("<p>one<p>two<br>three", "one\n\ntwo\nthree"),
        ("<ul><li>a<li>b<ol><li>c</ol></ul>", "- a\n- b\n  1. c"),
        ("<p><b>b</b> <i>i</i> <code>c*d</code> snake_case *", "**b** *i* `c*d` snake_case *"),
        ("<pre>  x = 1\n\n\n\n  y</pre>", "```\n  x = 1\n\n  y\n```"),
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "| A | B |\n| --- | --- |\n| 1 | 2 |"),
        ("<blockquote>q</blockquote>", "> q"),
        ("<p>&lt;script&gt; &amp; &quot;", '<script> & "'),
        ("<title> The  page </title><p>text", "# The page\n\ntext"),
        ("<title>Same</title><h1>Same</h1>", "# Same"),
        ("<p><img src=x alt='a cat'> <img src=y>", "[picture: a cat]"),
        ("<nav>menu</nav><p>text<footer>imprint</footer>", "text"),
        ("<div>side</div><main><p>body</p></main>", "body"),
        ("<article>one</article><article>two</article>", "one\n\ntwo"),
        ("plain words", "plain words"),
        ("", ""),
    ],
)
def test_what_a_reader_sees_is_kept(html: str, text: str) -> None:
    assert markdown(html) == text


@pytest.mark.parametrize(
    ("href", "link"),
    [
        ("b", "https://e.example/a/b"),
        ("/b?c=d&e", "https://e.example/b?c=d&e"),
        ("//o.example/x", "https://o.example/x"),
        ("http://o.example/ü (1)", "http://o.example/%C3%BC%20%281%29"),
        ("#part", "https://e.example/a/page#part"),
    ],
)
def test_links_are_whole(href: str, link: str) -> None:
    assert markdown(f'<p><a href="{href}">go</a>') == f"[go]({link})"


@pytest.mark.parametrize(
    "href", ["javascript:x", "data:text/html,x", "mailto:a@b.example", "file:///x", "http://[x", "", "tel:1"]
)
def test_a_link_that_is_none_for_the_web_is_its_text(href: str) -> None:
    expected = "[go](https://e.example/a/page)" if href == "" else "go"
    assert markdown(f'<p><a href="{href}">go</a>') == expected


def test_a_base_moves_relative_links() -> None:
    assert markdown('<base href="/docs/"><p><a href=x>go</a>') == "[go](https://e.example/docs/x)"


@pytest.mark.parametrize(
    "hidden",
    [
        f"<script>{HIDDEN}</script>",
        f"<!-- {HIDDEN} -->",
        f"<p hidden>{HIDDEN}</p>",
        f"<p aria-hidden='true'>{HIDDEN}</p>",
        f"<p style='DISPLAY : none;color:red'>{HIDDEN}</p>",
        f"<p style='visibility:hidden'>{HIDDEN}</p>",
        f"<p style='font-size: 0'>{HIDDEN}</p>",
        f"<p style='font-size:0.0em'>{HIDDEN}</p>",
        f"<p style='text-indent:-9999px'>{HIDDEN}</p>",
        f"<p style='position:fixed;top:-5000px'>{HIDDEN}</p>",
        f"<p style='clip: rect(0 0 0 0)'>{HIDDEN}</p>",
        f"<p style='color:transparent'>{HIDDEN}</p>",
        f"<style>.q{{display:none}}</style><p class='q r'>{HIDDEN}</p>",
        f"<style>#q,b{{visibility:hidden}}</style><p id=q>{HIDDEN}",
        f"<template>{HIDDEN}</template>",
        f"<noscript>{HIDDEN}</noscript>",
        f"<iframe>{HIDDEN}</iframe>",
        f"<div hidden><p>{HIDDEN}<b>{HIDDEN}</b></div>",
        f"<textarea>{HIDDEN}</textarea>",
        f"<svg><text>{HIDDEN}</text></svg>",
        f"<b title='{HIDDEN}' data-a='{HIDDEN}'>x</b>",
        f"<img src='//x.example/{HIDDEN}'>",
        f"<a href='javascript:{HIDDEN}'>x</a>",
    ],
)
def test_what_no_visitor_sees_is_left_out(hidden: str) -> None:
    """INJ-01: the place where instructions for agents are kept."""
    text = markdown(f"<h1>Title</h1>{hidden}<p>end")

    assert HIDDEN not in text
    assert "Title" in text


@pytest.mark.parametrize(
    "html",
    [
        "<p style='opacity:0'>shown</p>",
        "<style>@media print{.a{display:none}}</style><p class=a>shown",
        "<p style='font-size:0.9em'>shown</p>",
        "<p style='margin-left:-9999px'>shown",
        "<details><p>shown</details>",
        "<style>@import url(x); .b{display:none}</style><p class=a>shown",
        "<p style='background-color:transparent'>shown",
    ],
)
def test_what_a_visitor_may_come_to_see_is_kept(html: str) -> None:
    assert markdown(html) == "shown"


def test_characters_that_nobody_sees_are_left_out() -> None:
    tag = "".join(chr(0xE0000 + ord(char)) for char in "obey")
    text = markdown(f"<p>a\u200bb\u202ec\u2066d{tag}e\ufe0ff\u00adg\u3164h &#x200b;&#xe0041;i\u00a0j")

    assert text == "abcdefgh i j"


def test_a_table_that_only_places_things_is_taken_apart() -> None:
    html = "<table><tr><td>left<td><table><tr><th>A<tr><td>1</table></table>"

    assert markdown(html).split() == ["left", "|", "A", "|", "|", "---", "|", "|", "1", "|"]


def test_what_lies_deep_is_kept_as_text() -> None:
    depth = MOST_DEPTH * 20

    assert markdown("<div>" * depth + "<script>no</script>deep<b>er</b>" + "</div>" * depth + "<p>after").split() == [
        "deep",
        "er",
        "after",
    ]


@pytest.mark.parametrize(
    ("data", "stated", "text"),
    [
        (b"\xef\xbb\xbf\xc3\xa9", "latin-1", "é"),
        (b"\xff\xfee\x00", "utf-8", "e"),
        (b"\x93q\x94", "iso-8859-1", "“q”"),
        (b"\xe9", "", "\ufffd"),
        (b"+AGE-", "utf-7", "+AGE-"),
    ],
)
def test_bytes_become_text(data: bytes, stated: str, text: str) -> None:
    """NET-06."""
    assert decoded(data, stated) == text


@pytest.mark.parametrize(
    "label", ["", "nonsense", "idna", "punycode", "rot13", "zip", "hex", "unicode_escape", "utf-7", "a\0b", "mbcs"]
)
def test_what_is_no_character_set_chooses_no_codec(label: str) -> None:
    assert known(label) == ""


@TRIED
@given(TREES)
@example("<ul><a href='//o.example'></ul>")
def test_no_tree_lets_hidden_words_through(html: str) -> None:
    """A hundred thousand of them: tests/proof/test_fuzz.py."""
    check_tree(html)


@TRIED
@given(SOUP, LABELS)
def test_any_bytes_give_some_text(data: bytes, label: str) -> None:
    """NET-06, R-54."""
    check_any_bytes(data, label)
