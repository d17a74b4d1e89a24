"""The table, as text and as JSON."""
import json

from . import measure

CEILINGS = ("raw", "libmicrohttpd", "own 200", "own polls", "raw-recorded", "bare commit", "raw-durable",
            "O_DIRECT read", "O_DIRECT write", "link", "copy", "own alone", "without fleet", "owner", "etcd", "sockets")
SCALE = {"GB/s": 1e9, "k/s": 1e3}


def number(value, unit):
    if value is None:
        return "-"
    value /= SCALE.get(unit, 1)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def met(case, name, value, target):
    """Whether a target is met: a least ratio or figure, or a limit."""
    if value is None or target is None:
        return None
    limit = name in case.limits or (name == "ours" and getattr(case, "lower_is_better", False))
    return value <= target if limit else value >= target


def summarise(case, sides):
    """One row as plain data. A failed side has no figures, only the reason."""
    named = {side.name: side for side in sides}
    ours = named.get("ours")
    row = {"case": case.key, "title": case.title, "unit": case.unit, "sides": {}, "ratios": {}, "targets": {},
           "extra": {}, "lower_is_better": getattr(case, "lower_is_better", False)}
    for side in sides:
        entry = {"turns": side.turns}
        if side.failure:
            entry["failure"] = side.failure
        if side.turns:
            entry["median"] = side.median()
            entry["server_cpu_ms_per_gib"] = side.cpu_ms_per_gib()
            entry["server_cpu_us_per_request"] = side.cpu_us_per_request()
        row["sides"][side.name] = entry
        if ours and side is not ours:
            row["ratios"][side.name] = measure.ratio(ours, side)
    if ours and ours.turns:
        row["extra"] = case.extra(ours)
    for name, target in {**case.targets, **case.limits}.items():
        value = row["ratios"].get(name, row["extra"].get(name))
        if name == "ours":
            value = row["sides"].get("ours", {}).get("median")
        row["targets"][name] = {"target": target, "value": value, "met": met(case, name, value, target)}
    return row


def verdict(row):
    """The missed targets, by the side that they refer to."""
    failed = [name for name, side in row["sides"].items() if "failure" in side]
    missed = [name for name, target in row["targets"].items() if target["met"] is False]
    if "ours" in failed:
        return "FAILED"
    if missed:
        return "below: " + ", ".join("target" if name == "ours" else name for name in missed)
    return "met" if any(target["met"] for target in row["targets"].values()) else "-"


def further(row, name, text):
    """A ratio or a figure beside gpubufd's, with its target if there is one."""
    target = row["targets"].get(name)
    return f"{name} {text}" + (f" (aim {target['target']:g})" if target else "")


def ceiling_of(row):
    """The first ceiling that has a target, or the first at all."""
    found = [name for name in CEILINGS if name in row["sides"]]
    return next((name for name in found if name in row["targets"]), found[0] if found else None)


def cells(row):
    sides = row["sides"]
    ceiling = ceiling_of(row)
    target = row["targets"].get(ceiling) or row["targets"].get("ours") or {}
    ratio = row["ratios"].get(ceiling)
    if row["lower_is_better"]:
        others = [f"{name} {number(side['median'], row['unit'])} {row['unit']}" for name, side in sides.items()
                  if name != "ours" and "median" in side]
    else:
        others = [further(row, name, f"{value:.2f}") for name, value in row["ratios"].items() if name != ceiling
                  and value]
    others += [further(row, name, number(value, None)) for name, value in row["extra"].items()]
    cpu = [f"{sides[name]['server_cpu_ms_per_gib']:.0f}" if sides.get(name, {}).get("server_cpu_ms_per_gib") else "-"
           for name in ("ours", ceiling)]
    return [row["title"], number(sides.get("ours", {}).get("median"), row["unit"]),
            number(sides.get(ceiling, {}).get("median"), row["unit"]) if ceiling else "-", row["unit"],
            f"{ratio:.2f}" if ratio else "-", f"{target['target']:g}" if target.get("target") else "-", verdict(row),
            ", ".join(others) or "-", " / ".join(cpu)]


HEADINGS = ["case", "ours", "ceiling", "unit", "ratio", "target", "verdict", "ours / others; further figures",
            "server CPU ms/GiB, ours / ceiling"]


def table(rows):
    """A Markdown table with aligned columns."""
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def failures(rows):
    for row in rows:
        for name, side in row["sides"].items():
            if "failure" in side:
                yield f"{row['case']}: {name}: {side['failure']}"


def write_json(path, machine, rows, notes):
    with open(path, "w") as f:
        json.dump({"machine": machine, "rows": rows, "notes": notes}, f, indent=1)
        f.write("\n")
