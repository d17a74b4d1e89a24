"""The oracle of the tests of durable buffers must itself be able to fail."""
import pytest

from durable_oracle import GONE, LOST, Oracle, State, digest, successor

A, B, C = digest(b"a"), digest(b"b"), digest(b"c")


@pytest.fixture
def oracle():
    return Oracle()


def sent(oracle, name, state):
    oracle.begin({name: state}).acknowledged()


def test_what_was_acknowledged_is_there(oracle):
    sent(oracle, "x", State(A))
    sent(oracle, "y", State(B, labels=(("k", "v"),)))
    assert oracle.restarted({"x": State(A), "y": State(B, labels=(("k", "v"),))}) == []


def test_older_bytes_are_a_fault(oracle):
    sent(oracle, "x", State(A))
    sent(oracle, "x", State(B))
    (fault,) = oracle.restarted({"x": State(A)})
    assert fault.startswith("x has") and "older bytes" in fault


def test_older_than_the_unanswered_is_one_as_well(oracle):
    sent(oracle, "x", State(A))
    sent(oracle, "x", State(B))
    oracle.begin({"x": State(C)})
    assert "older bytes" in oracle.restarted({"x": State(A)})[0]


@pytest.mark.parametrize("found", [State(A), State(B)])
def test_an_unanswered_request_may_have_been_carried_out(oracle, found):
    sent(oracle, "x", State(A))
    oracle.begin({"x": State(B)})
    assert oracle.restarted({"x": found}) == []
    # What was found then is what there is.
    other = State(B if found.sha == A else A)
    assert len(oracle.restarted({"x": other})) == 1


def test_a_refused_request_was_not_carried_out(oracle):
    sent(oracle, "x", State(A))
    oracle.begin({"x": State(B)}).refused()
    assert len(oracle.restarted({"x": State(B)})) == 1


@pytest.mark.parametrize("found", [{}, {"x": State(LOST)}, {"x": State(C)}, {"x": State(A, labels=(("a", "b"),))},
                                   {"x": State(A, "none")}, {"x": State(A, sealed=True)},
                                   {"x": State(A), "y": State(B)}])
def test_anything_else_is_a_fault(oracle, found):
    sent(oracle, "x", State(A))
    assert len(oracle.restarted(found)) == 1


def test_what_was_deleted_does_not_come_back(oracle):
    sent(oracle, "x", State(A))
    sent(oracle, "x", GONE)
    assert "deleted before" in oracle.restarted({"x": State(A)})[0]


def test_a_tag_names_the_same_bytes_for_ever(oracle):
    oracle.tag("1.1.a", A)
    oracle.tag("1.1.a", A)
    assert oracle.restarted({}) == []
    oracle.tag("1.1.a", B)
    assert len(oracle.restarted({})) == 1


def test_all_or_nothing(oracle):
    sent(oracle, "x", State(A))
    oracle.begin({"x": State(B), "y": State(C)}, atomic=True)
    assert len(oracle.restarted({"x": State(B)})) == 1
    other = Oracle()
    sent(other, "x", State(A))
    other.begin({"x": State(B), "y": State(C)}, atomic=True)
    assert other.restarted({"x": State(B), "y": State(C)}) == []


def test_behind(oracle):
    x = successor(GONE, A, "behind")
    sent(oracle, "x", x)
    assert x.permits(State(LOST, "behind"), False) and x.permits(State(A, "behind"), False)
    oracle.on_disk("x")
    sent(oracle, "x", successor(oracle.state("x"), B, "behind"))
    sent(oracle, "x", successor(oracle.state("x"), C, "behind"))
    assert [oracle.state("x").permits(State(s, "behind"), False) for s in (A, B, C, LOST)] == [True, True, True, False]
    oracle.on_disk("x")
    assert "older bytes" in oracle.restarted({"x": State(B, "behind")})[0]


def test_none_is_lost_and_nothing_else(oracle):
    sent(oracle, "x", State(A, "none"))
    assert len(oracle.restarted({"x": State(A, "none")})) == 1
    oracle.faults.clear()
    sent(oracle, "x", State(A, "none"))
    assert oracle.restarted({"x": State(LOST, "none")}) == []


def test_without_power_the_rest_may_be_missing(oracle):
    sent(oracle, "x", State(A, "none"))
    sent(oracle, "y", State(A))
    assert len(oracle.restarted({"y": State(A)})) == 1
    other = Oracle()
    sent(other, "x", State(A, "none"))
    sent(other, "y", State(A))
    assert other.restarted({"y": State(A)}, power=True) == []
    assert len(other.restarted({}, power=True)) == 1
