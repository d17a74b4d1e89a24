"""A load in bursts with a known mean."""
import contextlib
import re
import threading
import time

MIB = 1 << 20
BURST = 8 * MIB
SIZES = {"B": 1, "KiB": 1024, "MiB": MIB, "GiB": 1 << 30}


@contextlib.contextmanager
def bursts(d, every_s=1.0):
    """Sends a PUT and a GET at once, then nothing until the next second."""
    over = threading.Event()
    body = bytes(BURST)

    def go():
        at = time.monotonic()
        while not over.wait(max(0, at - time.monotonic())):
            d.put("burst", body, query=f"?dtype=uint8&shape={BURST}")
            d.data("burst")
            at += every_s

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rate(text):
    number, unit = re.fullmatch(r"([0-9.]+) (\w+)/s", text).groups()
    return float(number) * SIZES[unit]
