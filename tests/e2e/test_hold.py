"""Holding streams: what is queued behind a hold waits, what is not does not, and a stop waits for none."""
import signal

from conform import Session, refuse
from gpubuf_cli import FAILED, USAGE, Cli
from harness import DATA, until
from values import payload

LONG = 10000


def test_what_is_queued_behind_a_hold_waits(s):
    s.post("streams", {"name": "a"}, 201)
    r = s.post("streams/a/hold", {"ms": 500})
    assert ((r["session"], r["stream"], r["device"]["index"], r["ms"]) == (s.name, "a", 0, 500)
            and r["held_until"].endswith("Z"))
    assert s.get("streams/a")["busy"] and not s.get("streams/default")["busy"]
    s.put("x", payload(1000))
    assert s.data("x") == payload(1000)
    s.put("y", payload(2000), "?stream=a")
    assert s.data("y", "?stream=a") == payload(2000)
    until("the hold is over", lambda: not s.get("streams/a")["busy"])
    until("it may be held again", lambda: s.ask("POST", "streams/a/hold", {"ms": 1}).status == 200)


def test_refusals(start):
    s = Session(start())
    s.post("streams/default/hold", {"ms": LONG, "device": 0})
    refuse(s, [
        ("POST", "streams/default/hold", {"ms": 1}, 409, "stream_held", "default"),
        ("POST", "streams/default/hold", {}, 400, "invalid_argument", "'ms'"),
        ("POST", "streams/default/hold", {"ms": 0}, 400, "invalid_argument", "'ms'"),
        ("POST", "streams/default/hold", {"ms": LONG + 1}, 400, "invalid_argument", "10000"),
        ("POST", "streams/default/hold", {"ms": "long"}, 400, "wrong_type", "number"),
        ("POST", "streams/default/hold", {"ms": 1, "device": 99}, 404, "device_not_found", "99"),
        ("POST", "streams/default/hold", {"ms": 1, "until": 2}, 400, "unknown_field", "until"),
        ("POST", "streams/none/hold", {"ms": 1}, 404, "stream_not_found", "none"),
    ])
    for i in range(7):
        s.post("streams", {"name": f"h{i}"}, 201)
        s.post(f"streams/h{i}/hold", {"ms": LONG})
    s.post("streams", {"name": "more"}, 201)
    p = s.ask("POST", "streams/more/hold", {"ms": 1}).problem(503, "saturated")
    assert "8 streams are held" in p["detail"]


def test_a_stop_ends_the_holds(start):
    """A transfer that waits behind a hold finishes within a stop timeout that is shorter than the hold."""
    d = start("--stop-timeout", "5")
    s = Session(d)
    s.put("x", payload(100000))
    s.post("streams", {"name": "a"}, 201)
    s.post("streams/a/hold", {"ms": LONG})
    waiting = d.raw().request("GET", DATA.format("default", "x") + "?stream=a")
    until("it is asked for", lambda: d.get("/v1/stats")["running"]["downloads"] == 1)
    d.process.send_signal(signal.SIGTERM)
    assert waiting.reply().body == payload(100000)
    waiting.close()
    assert "cut" not in d.finished()


def test_the_command(start):
    d = start()
    cli = Cli(d.url(""), "default")
    assert cli.json("hold", "default", LONG, "--device", 0)["ms"] == LONG
    assert "is held on device 0" in cli("hold", "default", 5).expect(FAILED).err
    assert "milliseconds" in cli("hold", "default", "x").expect(USAGE).err
    cli("streams", "add", "a").expect()
    assert "a: held on device 0 until 20" in cli("hold", "a", 1).expect().out
