#!/usr/bin/env python3
"""One way for a process to get all tensors of a model: WAY WHERE DEVICE. Prints how long it took until their names were
there, and then all arrays, without the time to load libraries and to begin with CUDA."""
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "python"))


def by_map(socket, device):
    import gpubuf
    import numpy

    assert numpy
    client = gpubuf.Client(socket=socket)
    yield
    tensors = client.tensors("bench-model")
    yield tensors
    yield {name: tensors[name] for name in tensors}
    tensors.close()


def by_load_file(path, device):
    if device == "cuda":
        from safetensors.torch import load_file
        yield
        taken = load_file(path, device="cuda")
        yield taken
        yield taken
    else:
        from safetensors.numpy import load_file
        yield
        taken = load_file(path)
        yield taken
        yield taken


def main():
    way, where, device = sys.argv[1:]
    if device == "cuda":
        import torch
        torch.zeros(1, device="cuda")
    steps = {"map": by_map, "load_file": by_load_file}[way](where, device)
    next(steps)
    began = time.perf_counter()
    next(steps)
    opened = time.perf_counter() - began
    taken = next(steps)
    json.dump({"opened": opened, "seconds": time.perf_counter() - began, "tensors": len(taken)}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # the end of a lease and of a context is not measured


if __name__ == "__main__":
    main()
