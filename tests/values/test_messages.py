"""What providers answer, as one line of a message."""

from __future__ import annotations

import pytest

from orchestrator.messages import LONGEST_MESSAGE, join_some, to_one_line

# The page of Google's front end for a failing backend, shortened in its style sheet (2026).
PAGE = """502: <!DOCTYPE html>
<html lang=en>
  <meta charset=utf-8>
  <title>Error 502 (Server Error)!!1</title>
  <style>
    *{margin:0;padding:0}html,code{font:15px/22px arial,sans-serif}
  </style>
  <a href=//www.google.com/><span id=logo aria-label=Google></span></a>
  <p><b>502.</b> <ins>That&rsquo;s an error.</ins>
  <p>The server encountered a temporary error and could not complete your request.<p>Please try again in 30 seconds.
"""


def test_an_html_page_becomes_one_line_of_its_words() -> None:
    assert to_one_line(PAGE) == (
        "502: Error 502 (Server Error)!!1 502. That\u2019s an error. The server encountered a temporary error and could"
        " not complete your request. Please try again in 30 seconds."
    )


@pytest.mark.parametrize("text", ["a < b and c > d", "quota 'X' <none>", ""])
def test_text_that_is_no_page_keeps_its_characters(text: str) -> None:
    assert to_one_line(text) == text


def test_a_long_text_is_cut_and_lines_are_joined() -> None:
    line = to_one_line("word\n  " * 1000)
    assert len(line) <= LONGEST_MESSAGE and line.startswith("word word") and line.endswith("…") and "\n" not in line


def test_a_long_list_names_the_first_and_counts_the_others() -> None:
    assert join_some(["a"]) == "a"
    assert join_some(["a", "b", "c"], 3) == "a, b, c"
    assert join_some(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
