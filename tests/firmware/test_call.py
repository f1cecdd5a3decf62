# What a call is bound to, and what is told of a tool's exception. Its life as a whole: test_registry.
from vrt.errors import VrtError
from vrt.tools.call import digest_of, explain


def test_digest_is_of_the_name_and_the_value_of_the_arguments():
    digest, size, problem = digest_of("lock", {"door": "front", "state": "locked"})
    assert problem is None
    assert len(digest) == 16
    assert size == len('lock{"door":"front","state":"locked"}')
    assert digest_of("lock", {"state": "locked", "door": "front"})[0] == digest
    for name, arguments in (
        ("look", {"door": "front", "state": "locked"}),
        ("lock", {"door": "back", "state": "locked"}),
        ("lock", {"door": "front"}),
        ("lock", {"door": "front", "state": "locked", "x": None}),
        ("lock", None),
    ):
        assert digest_of(name, arguments)[0] != digest


def test_arguments_that_have_no_text_are_a_problem():
    deep = 1
    for _ in range(40):
        deep = {"a": deep}
    assert "nested" in digest_of("lock", deep)[2]
    assert "float" in digest_of("lock", {"n": float("inf")})[2]


def test_exception_is_explained_in_bounded_text():
    assert explain(VrtError("the door stands open")) == "the door stands open"
    assert explain(ValueError("no")) == "ValueError: no"
    assert len(explain(ValueError("x" * 999))) == 200
