from datetime import UTC, datetime

import pytest

from rangecast.errors import SpaceError
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space

TOML = """
[[attribute]]
name = "price"
type = "number"
min = 0

[[attribute]]
name = "volume"
type = "integer"
min = 0
max = 1_000_000_000

[[attribute]]
name = "at"
type = "timestamp"
max = 2030-01-01T00:00:00Z

[[attribute]]
name = "halted"
type = "boolean"

[[attribute]]
name = "grade"
type = "category"
values = ["low", "high"]

[[attribute]]
name = "symbol"
type = "string"

[[attribute]]
name = "region"
type = "hierarchy"
tree = { EU = ["de", { FR = ["paris", "lyon"] }], US = ["ny", "ca"] }
"""


ONE = "[[attribute]]\nname = 'a'\ntype = 'number'\n"


def python_space():
    return Space(
        [
            Number("price", min=0),
            Integer("volume", min=0, max=10**9),
            Timestamp("at", max=datetime(2030, 1, 1, tzinfo=UTC)),
            Boolean("halted"),
            Category("grade", ["low", "high"]),
            String("symbol"),
            Hierarchy("region", {"EU": ["de", {"FR": ["paris", "lyon"]}], "US": ["ny", "ca"]}),
        ]
    )


def test_toml_and_python_say_the_same():
    space = Space.from_toml(TOML)
    assert space == python_space()
    assert Space.from_toml(space.to_toml()) == space
    assert space.axis("at") == 2
    assert space["region"].equal("FR") == (1.0, 2.0)


def test_a_space_is_read_from_and_written_to_a_file(tmp_path):
    path = tmp_path / "space.toml"
    python_space().save(path)
    assert Space.load(path) == python_space()
    corrected = path.read_text() + "# mine\n"
    path.write_text(corrected)
    with pytest.raises(SpaceError, match=r"already exists\n  hint: .*overwrite=True"):
        python_space().save(path)
    assert path.read_text() == corrected
    python_space().save(path, overwrite=True)
    assert path.read_text() == python_space().to_toml()


def test_a_misspelt_attribute_gets_a_hint():
    with pytest.raises(SpaceError, match="no attribute 'prise': did you mean 'price'"):
        python_space().axis("prise")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", "list of .*attribute.* tables; found: nothing"),
        ("[attribute]\nname = 'x'", "list of"),
        ("x = 1", "found: 'x'"),
        ("[[attribute]\n", "not valid TOML"),
        ("[[attribute]]\ntype = 'number'", "non-empty string"),
        ("[[attribute]]\nname = 'x'", "has no type"),
        ("[[attribute]]\nname = 'x'\ntype = 'numbr'", "did you mean 'number'"),
        ("[[attribute]]\nname = 'x'\ntype = 'number'\nvalues = []", "a number has no 'values'"),
        ("[[attribute]]\nname = 'x'\ntype = 'category'", "needs 'values'"),
        ("[[attribute]]\nname = 'x'\ntype = 'category'\nvalues = 'a'", "list of strings"),
        ("[[attribute]]\nname = 'x'\ntype = 'category'\nvalues = ['a', 'a']", "more than once"),
        ("[[attribute]]\nname = 'x'\ntype = 'integer'\nmin = 'a'", "min and max"),
        ("[[attribute]]\nname = 'x'\ntype = 'integer'\nmin = nan", "min and max"),
        ("[[attribute]]\nname = 'id'\ntype = 'number'", "'id' is ambiguous"),
        (ONE + "[[attribute]]\nname = 'a_lo'\ntype = 'number'", "'a_lo' is ambiguous"),
        (ONE + ONE, "is ambiguous"),
    ],
)
def test_a_bad_space_is_rejected_with_the_reason(toml, message, tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(toml)
    with pytest.raises(SpaceError, match=message) as caught:
        Space.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_rejected_by_name(tmp_path):
    with pytest.raises(SpaceError, match=r"nowhere\.toml"):
        Space.load(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpaceError, match=r"binary\.toml"):
        Space.load(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("kind", "meant"), [("date", "timestamp"), ("Float", "number"), ("varchar", "string")]
)
def test_a_type_that_others_call_so_is_named_as_here(kind, meant):
    with pytest.raises(SpaceError, match=f"the unknown type '{kind}'; use '{meant}'"):
        Space.from_toml(f'[[attribute]]\nname = "x"\ntype = "{kind}"')


def test_a_timestamp_begins_at_a_time_a_date_or_a_text():
    table = '[[attribute]]\nname = "at"\ntype = "timestamp"\nmin = '
    given = ("2020-01-01T00:00:00Z", "2020-01-01", '"2020-01-01T00:00:00Z"', '"2020-01-01"')
    assert len({Space.from_toml(table + one)["at"].domain for one in given}) == 1
