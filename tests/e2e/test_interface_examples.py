"""The interface's document as generators of clients read it: names of operations and parameters, and an example of each
body."""
import re

import pytest

from conform import interface
from harness import library

METHODS = ("get", "head", "post", "put", "patch", "delete")


def bodies(described):
    """(operation's id, where, media type) of each body of JSON: the request's, and that of each answer that
    succeeded."""
    for item in described.document["paths"].values():
        for operation in (item[m] for m in METHODS if m in item):
            where = [("request", operation.get("requestBody", {}))]
            where += [(status, described.resolve(answer)) for status,
                      answer in operation["responses"].items() if status[0] == "2"]
            for place, node in where:
                content = described.resolve(node).get("content", {}).get("application/json")
                if content and content.get("schema"):  # none: a file of a checkpoint, of any form
                    yield operation["operationId"], place, content


@pytest.mark.once
def test_every_body_has_a_valid_example(start):
    library("jsonschema_rs")
    described = interface(start())
    found = list(bodies(described))
    assert len(found) > 150
    for name, place, content in found:
        examples = [content["example"]] if "example" in content else [described.resolve(e)["value"]
                                                                      for e in content.get("examples", {}).values()]
        assert examples, f"{name}, {place}: there is no example"
        for example in examples:
            wrong = next(described.validator(content["schema"]).iter_errors(example), None)
            assert wrong is None, f"{name}, {place}: {wrong.message}"


@pytest.mark.once
def test_names_serve_as_those_of_a_client(start):
    """A method for each operation, an argument for each parameter of its path, a class for each body."""
    described = interface(start())
    operations = [item[m] for item in described.document["paths"].values() for m in METHODS if m in item]
    names = [operation["operationId"] for operation in operations]
    assert len({re.sub("[^a-z]", "", name.lower()) for name in names}) == len(names)
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)*", name) for name in names), names
    for path in described.document["paths"]:
        captures = re.findall(r"{(\w+)}", path)
        assert len(set(captures)) == len(captures) and all(len(c) > 1 for c in captures), path
    for name, place, content in bodies(described):
        forms = [form for key in ("anyOf", "oneOf") for form in content["schema"].get(key, [])] or [content["schema"]]
        assert all("$ref" in form for form in forms) or name == "getOpenapi", f"{name}, {place}: the form has no name"
    used = set(re.findall(r"'#/components/examples/(\w+)'",
                          str([described.document["paths"], described.document["components"]["responses"]])))
    assert used == set(described.document["components"]["examples"])
