"""Protobuf's text format is read without knowing its schemas, and printed again."""

import pytest

from rekord.errors import SchemaError
from rekord.schema.interop.textproto import EnumName, TextprotoMessage, format_message, parse_textproto


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ("# only a comment", []),
        ("a: 1 b: -2, c: 0x1F; d: 017", [("a", 1), ("b", -2), ("c", 31), ("d", 15)]),
        ("a: 1.5 b: -.5e1 c: 2f d: 1.", [("a", 1.5), ("b", -5.0), ("c", 2.0), ("d", 1.0)]),
        (
            "a: true b: inf c: - inf d: INT",
            [
                ("a", EnumName("true")),
                ("b", EnumName("inf")),
                ("c", EnumName("-inf")),
                ("d", EnumName("INT")),
            ],
        ),
        ("a: 'x' \"y\" # joined\n'z'", [("a", b"xyz")]),
        (r'a: "\n\t\\\"\'\101\x41\u00e9\U0001F600é"', [("a", "\n\t\\\"'AAé😀é".encode())]),
        ('a: "#{}"', [("a", b"#{}")]),
        (
            "a {} b: {} c <> d: < >",
            [
                ("a", TextprotoMessage()),
                ("b", TextprotoMessage()),
                ("c", TextprotoMessage()),
                ("d", TextprotoMessage()),
            ],
        ),
        ("a { b { c: 1 } }", [("a", TextprotoMessage([("b", TextprotoMessage([("c", 1)]))]))]),
        ("a: [1, 2] b: [] c: ['x']", [("a", 1), ("a", 2), ("c", b"x")]),
        ("a: [{b: 1}, <b: 2>]", [("a", TextprotoMessage([("b", 1)])), ("a", TextprotoMessage([("b", 2)]))]),
        (
            "[foo.bar]: 1 [type.googleapis.com/x.Y] { a: 1 }",
            [("[foo.bar]", 1), ("[type.googleapis.com/x.Y]", TextprotoMessage([("a", 1)]))],
        ),
    ],
)
def test_a_text_is_read_into_its_fields(text, fields):
    assert parse_textproto(text) == TextprotoMessage(fields)
    assert parse_textproto(format_message(parse_textproto(text))) == TextprotoMessage(fields)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a", "line 1, column 2"),
        ("a:", "line 1, column 3"),
        ("a {", "line 1, column 4"),
        ("}", "line 1, column 1"),
        ("a { >", "line 1, column 5"),
        ("\n  1: 2", "line 2, column 3"),
        ("-a: 2", "line 1, column 1"),
        ('a: "x', "line 1, column 4"),
        ('a: "x\ny"', "line 1, column 4"),
        (r'a: "\q"', "line 1, column 4"),
        (r'a: "\ud800"', "line 1, column 4"),
        (r'a: "\UFFFFFFFF"', "line 1, column 4"),
        ("a: 1x", "line 1, column 4"),
        ("a: 09", "line 1, column 4"),
        ("a: [1", "line 1, column 6"),
        ("a: [1 2]", "line 1, column 7"),
        ("a: [[1]]", "line 1, column 5"),
        ("[a", "line 1, column 3"),
        ("a: @", "line 1, column 4"),
        ("a {" * 101, "line 1, column 303"),
        ("a: " + "9" * 5000, "line 1, column 4"),
    ],
)
def test_a_text_that_is_none_is_refused_at_its_line(text, place):
    with pytest.raises(SchemaError) as caught:
        parse_textproto(text)
    assert (caught.value.code, caught.value.location.feature) == ("S122", None)
    assert caught.value.what.endswith(place)
    assert all([caught.value.expected, caught.value.found, caught.value.do])


def test_the_last_of_a_single_field_counts_and_messages_are_merged():
    message = parse_textproto("a: 1 a: 2 m { x: 1 } m { y: 2 } t: 'é' w: BYTES n: 3 f: true g: 1 i: -inf")
    assert message.number("a") == 2
    assert message.message("m") == TextprotoMessage([("x", 1), ("y", 2)])
    assert message.message("none") is None
    assert message.text("t") == "é"
    assert message.text("none") == ""
    assert message.word("w", {}) == "BYTES"
    assert message.word("n", {3: "FLOAT"}) == "FLOAT"
    assert (message.flag("f"), message.flag("g"), message.flag("none")) == (True, True, False)
    assert message.number("i") == float("-inf")
    assert message.number("w") is None
