"""Device health: from the fake NVML (tests/lib/fake_nvml.c), from fake files of a kernel, or unknown."""
import os
import time

import pytest

from conform import Session
from harness import SMALL_SLOTS, binary, until
from test_metrics import samples, scrape

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def nvml(start, tmp_path):
    """Starts daemons that load the fake NVML; answer(key=number) sets its values."""
    library = os.path.join(os.path.dirname(binary()), "tests", "lib", ".libs")
    if not os.path.exists(os.path.join(library, "libnvidia-ml.so.1")):
        pytest.skip("the fake NVML is only in the build folder")
    path = tmp_path / "answers"

    def answer(**numbers):
        fresh = tmp_path / "fresh"
        fresh.write_text("".join(f"{k.replace('__', '.')} {v}\n" for k, v in numbers.items()))
        os.replace(fresh, path)

    def go(*options):
        # It reads a file of its own, which is not one of those that NVML has.
        options = ("--landlock", "off", *options)
        env = {"FAKE_NVML": str(path), "LD_LIBRARY_PATH": library}
        return Session(start(*SMALL_SLOTS, "--health", "nvml", "--health-interval", "1", *options, env=env))

    answer()
    go.answer = answer
    return go


def health(s):
    return s.get("/v1/devices/0")["health"]


def test_nvml(nvml):
    nvml.answer(reasons=64 + 1, corrected=5)
    s = nvml()
    until("it is read", lambda: health(s)["source"] == "nvml")
    h = health(s)
    assert "reason" not in h
    assert (h["gpu_utilization"], h["memory_utilization"], h["temperature_c"]) == (0.37, 0.12, 54)
    assert (h["power_w"], h["power_limit_w"], h["ecc"]) == (123.456, 700, {"corrected": 5, "uncorrected": 0})
    assert h["clocks"] == {"sm_mhz": 1980, "memory_mhz": 3201, "reasons": ["gpu_idle", "hw_thermal_slowdown"]}
    mine, other = h["processes"]
    assert (mine["pid"] == s.daemon.process.pid and mine["name"].startswith("gpubufd"[:4]) and mine["used_bytes"] == 1
            << 20)
    assert other["name"] is None and other["used_bytes"] is None
    assert s.get("/v1/devices")["items"][0]["health"]["source"] == "nvml"
    seen = samples(scrape(s.daemon).body.decode())
    labels = {"device": "0", "uuid": s.get("/v1/devices/0")["uuid"]}

    def value(name, **more):
        return seen["gpubufd_device_" + name, frozenset({**labels, **more}.items())]

    assert value("temperature_celsius") == 54 and value("power_watts") == 123.456 and value("sm_clock_hertz") == 1980e6
    assert value("utilization_ratio") == 0.37 and value("ecc_corrected_errors_total") == 5 and value("processes") == 2
    assert value("process_memory_bytes", process="own") == 1 << 20
    assert not any(("process", "others") in labels for _, labels in seen)  # the health of one of them is unknown
    nvml.answer(processes=1, reasons=64 + 1)
    until("it is alone", lambda: ("gpubufd_device_process_memory_bytes",
                                  frozenset({**labels, "process": "others"}.items())) in samples(
                                      scrape(s.daemon).body.decode()))
    seen = samples(scrape(s.daemon).body.decode())
    assert value("process_memory_bytes", process="others") == 0 and value("process_memory_bytes",
                                                                          process="own") == 1 << 20
    assert value("clock_event", reason="hw_thermal_slowdown") == 1 and value("clock_event", reason="sync_boost") == 0
    assert 0 <= value("health_age_seconds") < 60
    nvml.answer(temperature=71, processes=100, fail__nvmlDeviceGetPowerUsage=3)
    until("the next reading", lambda: health(s)["temperature_c"] == 71)
    h = health(s)
    assert h["power_w"] is None and len(h["processes"]) == 32 and h["processes_more"] == 68
    until("metrics follow", lambda: b"device_power_watts{" not in scrape(s.daemon).body, every_s=0.2)


def notices(s):
    page = s.ask("GET", "/v1/feed?type=device.health", headers={"Accept": "application/json"}).expect(200).json()
    return [x["detail"] for x in page["items"]]


def test_what_goes_wrong_is_told(nvml):
    s = nvml()
    until("it is read", lambda: health(s)["source"] == "nvml")
    # the initial state causes no event: the housekeeper, which checks as often as health is read, has seen it
    for _ in range(3):
        at = health(s)["at"]
        until("it is read again", lambda: health(s)["at"] != at)
    nvml.answer(reasons=32, uncorrected=2)
    until("two notices", lambda: len(notices(s)) == 2)
    ecc, slow = notices(s)
    assert (ecc == "2 errors more that ECC could not correct, 2 in its lifetime"
            and slow == "slowed down: sw_thermal_slowdown")
    nvml.answer(uncorrected=2)
    until("it is over", lambda: len(notices(s)) == 3)
    assert notices(s)[2] == "the slowdown is over"
    nvml.answer(fail__nvmlDeviceGetTemperature=15)
    until("it is lost", lambda: len(notices(s)) == 4)
    h = health(s)
    assert h["source"] == "none" and "GPU is lost" in h["reason"] and "temperature_c" not in h
    assert "GPU is lost" in notices(s)[3]


def test_a_driver_that_hangs_holds_nobody_up(nvml):
    s = nvml()
    until("it is read", lambda: health(s)["source"] == "nvml")
    nvml.answer(hang__nvmlDeviceGetPowerUsage=1)
    until("it says so", lambda: "has not answered" in health(s).get("reason", ""), every_s=0.2)
    at = health(s)["at"]
    s.put("x", b"1234")
    assert s.data("x") == b"1234"
    h = health(s)
    assert h["at"] == at and h["temperature_c"] == 54  # the last reading, with its time
    began = time.monotonic()
    s.daemon.stop()
    assert time.monotonic() - began < 20


def test_a_kernel_that_shows_something(start, tmp_path):
    zone = tmp_path / "sys/class/thermal/thermal_zone3"
    load = tmp_path / "sys/devices/gpu.0"
    zone.mkdir(parents=True)
    load.mkdir(parents=True)
    (zone / "type").write_text("gpu-thermal\n")
    (zone / "temp").write_text("48250\n")
    (load / "load").write_text("250\n")
    s = Session(start(*SMALL_SLOTS, "--health", "system", "--health-root", str(tmp_path), "--health-interval", "1"))
    until("it is read", lambda: health(s)["source"] == "system")
    h = health(s)
    assert h["temperature_c"] == 48.25 and h["gpu_utilization"] == 0.25
    assert h["ecc"] is None and h["processes"] is None and h["clocks"]["reasons"] is None and h["power_w"] is None


def test_nothing(start, simulated):
    s = Session(start(*SMALL_SLOTS))
    until("health was read", lambda: "at" in health(s))
    assert health(s)["source"] == "none" and "simulated" in health(s)["reason"]
    assert b"device_temperature" not in scrape(s.daemon).body
    off = Session(start(*SMALL_SLOTS, "--health-interval", "0"))
    assert health(off) == {"source": "none", "reason": "the daemon was told not to look"}
    assert health(Session(start(*SMALL_SLOTS, "--health", "none")))["source"] == "none"


def test_a_gpu(s, backend):
    """The values of a real driver."""
    if backend != "cuda":
        pytest.skip("no GPU is asked for")
    until("it is read", lambda: "at" in health(s))
    h = health(s)
    if not s.get("/v1/devices/0")["integrated"]:
        assert h["source"] == "nvml" and -20 < h["temperature_c"] < 120 and 0 <= h["gpu_utilization"] <= 1
        assert h["power_w"] > 0 and h["clocks"]["sm_mhz"] > 0 and h["clocks"]["reasons"] is not None
        s.put("x", bytes(64 << 20))
        print(h)  # the other values depend on the machine
        until("its own memory is reported", lambda: any((p["used_bytes"] or 0) > 64 << 20
                                                        for p in health(s)["processes"]
                                                        if p["pid"] == s.daemon.process.pid))
