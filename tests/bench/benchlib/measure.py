"""Turns of the load generator, taken by the sides one after the other, round by round."""
import json
import statistics
import subprocess

from .servers import die_with_parent

GIB = 1 << 30
TURN_TIMEOUT_S = 300


class TurnFailed(Exception):
    pass


def command_line(settings, words):
    return [settings.program("gb-bench-load")] + [str(word) for word in words]


def load(settings, words):
    """One turn: what the generator printed, as a dict."""
    return run_program(command_line(settings, words))


def run_program(command):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TURN_TIMEOUT_S,
                              preexec_fn=die_with_parent)
    except subprocess.TimeoutExpired:
        raise TurnFailed(f"no result in {TURN_TIMEOUT_S} s") from None
    if done.returncode:
        raise TurnFailed(done.stderr.strip() or f"exit {done.returncode}")
    return json.loads(done.stdout)


class Background:
    """A turn that runs beside another."""

    def __init__(self, settings, words):
        self.process = subprocess.Popen(command_line(settings, words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=die_with_parent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def result(self):
        try:
            out, problem = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            raise TurnFailed("the turn beside it does not end") from None
        if self.process.returncode:
            raise TurnFailed(problem.strip() or f"exit {self.process.returncode}")
        return json.loads(out)


class Side:
    """One column: a name, the measured server, and a function for one turn."""

    def __init__(self, name, server, turn, value="bytes_per_s"):
        self.name = name
        self.server = server
        self.turn = turn
        self.value = value
        self.turns = []
        self.rounds = None  # the number of rounds that it takes part in; None: all
        self.failure = None

    def values(self):
        return [turn[self.value] for turn in self.turns]

    def median(self, key=None):
        return statistics.median(turn[key or self.value] for turn in self.turns)

    def errors(self):
        return sum(turn["errors"] for turn in self.turns)

    def cpu_ms_per_gib(self):
        moved = sum(turn.get("bytes", 0) for turn in self.turns)
        return 1000 * sum(turn["server_cpu_s"] for turn in self.turns) * GIB / moved if moved else None

    def cpu_us_per_request(self):
        asked = sum(turn["requests_per_s"] * turn["seconds"] for turn in self.turns if "requests_per_s" in turn)
        return 1e6 * sum(turn["server_cpu_s"] for turn in self.turns) / asked if asked else None


def take_turn(side, keep):
    before = side.server.cpu_s()
    try:
        result = side.turn()
    except TurnFailed as failure:
        side.failure = str(failure)
        return
    result["server_cpu_s"] = side.server.cpu_s() - before
    side.server.clean()
    if result.get("errors"):
        side.failure = f"{result['errors']} errors, {result.get('problem')}"
    if keep and result[side.value] > 0:
        side.turns.append(result)


def interleave(sides, rounds):
    """Runs a round to warm up, then the rounds that count. Each begins with another side, so that no side always
    follows the same neighbour. A side that fails is left out from then on, with its reason."""
    for r in range(rounds + 1):
        for i in range(len(sides)):
            side = sides[(i + r) % len(sides)]
            if side.failure is None and (side.rounds is None or r <= side.rounds):
                take_turn(side, r > 0)


def ratio(ours, other):
    """The median of the rounds' ratios; None when one of the sides has no rounds."""
    pairs = [a / b for a, b in zip(ours.values(), other.values()) if b]
    return statistics.median(pairs) if pairs else None
