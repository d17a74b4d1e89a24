"""Element types by the names of numpy, torch and safetensors, wherever one is given; answers keep the daemon's
names."""
import pytest

from conform import interface

S = "/v1/sessions/default"


def permitted(daemon):
    own, others = interface(daemon).document["components"]["schemas"]["DtypeGiven"]["anyOf"]
    assert own == {"$ref": "#/components/schemas/Dtype"}
    return interface(daemon).document["components"]["schemas"]["Dtype"]["enum"], others["enum"]


def test_all_that_the_document_lists(daemon):
    own, others = permitted(daemon)
    for name in [*own, *others]:
        made = daemon.ask("POST", S + "/buffers", {"name": "x", "dtype": name, "shape": [2]}).expect(201).json()
        assert made["dtype"] in own and made["bytes"] % 2 == 0, name
        if name.startswith("torch."):
            assert made["dtype"] == name[6:]
        daemon.ask("DELETE", S + "/buffers/x").expect(204)


@pytest.mark.parametrize("name,own", [("f4", "float32"), ("%3Cf4", "float32"), ("torch.bfloat16", "bfloat16"),
                                      ("BF16", "bfloat16"), ("F8_E4M3", "float8_e4m3fn")])
def test_wherever_one_is_given(daemon, name, own):
    plain = name.replace("%3C", "<")
    size = 4 if own == "float32" else 2 if own == "bfloat16" else 1
    assert daemon.put("x", bytes(4 * size), query=f"?dtype={name}&shape=4").json()["dtype"] == own
    assert daemon.ask("PATCH", S + "/buffers/x", {"dtype": plain, "shape": [2, 2]}).expect(200).json()["dtype"] == own
    u = daemon.ask("POST", S + "/uploads", {"buffer": "y", "dtype": plain,
                                            "shape": [4]}).expect(201).headers["Location"]
    daemon.ask("PUT", u + "/parts?offset=0", bytes(4 * size), {"Content-Type": "application/octet-stream"}).expect(200)
    assert daemon.ask("POST", u + "/complete").expect(201).json()["dtype"] == own
    daemon.ask("DELETE", S + "/buffers/y").expect(204)
    done = daemon.ask("POST", S + "/batch", {"operations": [{"op": "create", "buffer": "z", "dtype": plain,
                                                             "shape": [4]}]}).expect(200).json()
    assert done["results"][0]["status"] == 201 and daemon.meta("z")["dtype"] == own
    daemon.ask("DELETE", S + "/buffers/z").expect(204)


@pytest.mark.parametrize("name", ["", "f32", "torch.f4", "V2", "O8", "floating"])
def test_others_are_refused(daemon, name):
    p = daemon.ask("POST", S + "/buffers", {"name": "x", "dtype": name, "shape": [2]}).problem(400, "invalid_argument")
    assert "float32, float64" in p["detail"]


@pytest.mark.parametrize("name", ["float", "int"])
def test_what_numpy_and_torch_call_differently(daemon, name):
    p = daemon.ask("POST", S + "/buffers", {"name": "x", "dtype": name, "shape": [2]}).problem(400, "invalid_argument")
    assert "64 bits in numpy and 32 in torch" in p["detail"] and f'"{name}32"' in p["detail"]


def test_a_shape_alone_is_of_bytes(daemon):
    made = daemon.ask("POST", S + "/buffers", {"name": "bytes", "shape": [2, 3]}).expect(201).json()
    assert (made["dtype"], made["bytes"]) == ("uint8", 6)
    daemon.ask("DELETE", S + "/buffers/bytes").expect(204)


def test_big_endian_is_named(daemon):
    p = daemon.ask("POST", S + "/buffers", {"name": "x", "dtype": ">f4", "shape": [2]}).problem(400, "invalid_argument")
    assert "big-endian" in p["detail"] and '"<f4"' in p["detail"]
