"""Tables: the same cells as text, Markdown, HTML and on a screen."""

import pytest

from pclf.tables import Table

TABLE = Table(["item", "rating", "change"], [["Heat", "4.5", "-1.2 %"], ["a|b <i>", "12", ""]], "Two")


def test_numbers_stand_to_the_right_and_words_to_the_left():
    assert TABLE.text() == ("Two\n"
                            "item     rating  change\n"
                            "-------  ------  ------\n"
                            "Heat        4.5  -1.2 %\n"
                            "a|b <i>      12")


def test_markdown_keeps_its_columns_whatever_a_cell_holds():
    assert TABLE.markdown() == ("Two\n\n"
                                "| item     | rating | change |\n"
                                "| -------- | -----: | -----: |\n"
                                "| Heat     |    4.5 | -1.2 % |\n"
                                "| a\\|b <i> |     12 |        |")


def test_html_shows_cells_as_text():
    assert "<td>a|b &lt;i&gt;</td>" in TABLE.html()
    assert "<caption>Two</caption>" in TABLE.html()


def test_a_screen_shows_every_cell_and_obeys_none(capsys):
    Table(["film"], [["[rec]"], ["\x1b[31mred"]]).show()
    shown = capsys.readouterr().out
    assert "[rec]" in shown
    assert "\\x1b[31mred" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("show", [Table.text, Table.markdown, Table.html])
def test_a_table_without_rows_has_its_head(show):
    assert "users" in show(Table(["domain", "users"], []))
