#!/usr/bin/env python3
"""The whole job, with its figures: a model is made from a config, uploaded, taken by one, two and four processes, one
of them is killed and takes it again, all move over to a second version and back. Needs torch, transformers, and gpubuf
and gpubufd in PATH; without a GPU all is in the host's memory. Prints a table; ends with status 1 if two ways gave
other logits."""
import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TAKE = os.path.join(HERE, "take.py")
SIZES = {"tiny": (64, 2, 4, 1000), "1b": (2048, 16, 16, 32000), "7b": (4096, 32, 32, 32000)}


def make(folder, size, seed):
    """A Llama-like model in bfloat16, in several files. Returns its bytes."""
    import torch
    import transformers
    hidden, layers, heads, words = SIZES[size]
    config = transformers.LlamaConfig(hidden_size=hidden, intermediate_size=hidden * 8 // 3 // 64 * 64,
                                      num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
                                      vocab_size=words, dtype="bfloat16")
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="1GB" if size != "tiny" else "100KB")
    return sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".safetensors"))


def used():
    """MiB of the GPU's memory; 0 without one."""
    if not shutil.which("nvidia-smi"):
        return 0
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True,
                         capture_output=True, check=True).stdout
    return int(out.split()[0])


class Process:
    def __init__(self, folder, *options):
        began = time.perf_counter()
        self.child = subprocess.Popen([sys.executable, TAKE, folder, "current", *options], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = self.read()
        self.said["process_s"] = round(time.perf_counter() - began, 3)

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.child.args)} ended with status {self.child.wait()}")
        return json.loads(line)

    def ask(self, ids="1,2,3,4,5,6,7,8"):
        self.child.stdin.write(ids + "\n")
        self.child.stdin.flush()
        return self.read()

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def gpubuf(*words):
    return subprocess.run(["gpubuf", *words], check=True, text=True, capture_output=True).stdout


def publish(folder, name):
    began = time.perf_counter()
    gpubuf("put", folder + "/", name, "--kind", "shared")
    took = time.perf_counter() - began
    gpubuf("seal", name)
    return took


def switch(name):
    began = time.perf_counter()
    gpubuf("switch", "current", name)
    return time.perf_counter() - began


def row(what, value):
    print(f"| {what:60} | {value:>14} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="1b")
    size = parser.parse_args().size
    missing = [name for name in ("torch", "transformers", "numpy", "gpubuf") if not importlib.util.find_spec(name)]
    missing += [name for name in ("gpubuf", "gpubufd") if not shutil.which(name)]
    if missing:
        sys.exit("measure.py needs torch, transformers, numpy and gpubuf (PYTHONPATH=src/python), and gpubuf and "
                 f"gpubufd in PATH; not found: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as work:
        state = os.path.join(work, "state")
        os.mkdir(state)
        daemon = subprocess.Popen(["gpubufd", "--backend", "auto", "--state-dir", state, "--listen", "127.0.0.1:0",
                                   "--log-level", "error"])
        try:
            while not os.path.exists(os.path.join(state, "listen")):
                if daemon.poll() is not None:
                    sys.exit("gpubufd did not start")
                time.sleep(0.05)
            os.environ["GPUBUF_SOCKET"] = os.path.join(state, "gpubufd.sock")
            os.environ["GPUBUF_URL"] = "unix://" + os.environ["GPUBUF_SOCKET"]
            return job(work, size)
        finally:
            daemon.terminate()
            daemon.wait()


def job(work, size):
    folders = [os.path.join(work, f"v{i}") for i in (1, 2)]
    child = ("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import measure; "
             "print(measure.make(sys.argv[2], sys.argv[3], int(sys.argv[4])))")
    made = [subprocess.run([sys.executable, "-c", child, HERE, folder, size, str(i)], check=True, text=True,
                           capture_output=True).stdout.split()[-1] for i, folder in enumerate(folders)]
    parts = sum(name.endswith(".safetensors") for name in os.listdir(folders[0]))
    row("bytes of the model; files", f"{int(made[0]):,}; {parts}")
    took = publish(folders[0], "m-v1")
    row("gpubuf put, s (GB/s)", f"{took:.2f} ({int(made[0]) / took / 1e9:.1f})")
    row("gpubuf switch, ms, with the process", f"{1000 * switch('m-v1'):.0f}")
    pretrained = [Process(folders[0], "--pretrained") for _ in range(2)][1]
    alone = used()
    pretrained.end()
    wanted = {key: pretrained.said[key] for key in ("token", "sum", "most")}
    base = used()
    processes, same = [], True
    for count in (1, 2, 4):
        processes += [Process(folders[0], "--serve") for _ in range(count - len(processes))]
        row(f"memory used by {count} that took it, MiB more than none", f"{used() - base:,}")
    for p in processes:
        same = same and {key: p.said[key] for key in wanted} == wanted
    took = sorted(p.said["load_s"] for p in processes)
    row("from_pretrained: load, s; process to first token, s",
        f"{pretrained.said['load_s']:.2f}; {pretrained.said['process_s']:.2f}")
    row("taken: load, s; process to first token, s",
        f"{took[0]:.3f}; {min(p.said['process_s'] for p in processes):.2f}")
    row("torch's own memory: from_pretrained; taken, MiB",
        f"{pretrained.said['allocated'] >> 20:,}; {processes[0].said['allocated'] >> 20:,}")
    row("memory used with one from_pretrained beside the daemon, MiB more", f"{alone - base:,}")
    processes[0].child.kill()
    processes[0].child.wait()
    processes[0] = Process(folders[0], "--serve")
    same = same and {key: processes[0].said[key] for key in wanted} == wanted
    row("one killed, and back: process to first token, s", f"{processes[0].said['process_s']:.2f}")
    publish(folders[1], "m-v2")
    before = [p.ask() for p in processes[1:]]
    switch("m-v2")
    began = time.perf_counter()
    after = [p.ask() for p in processes]
    row("switched: all four moved over, s", f"{time.perf_counter() - began:.2f}")
    switch("m-v1")
    back = [p.ask() for p in processes]
    moved = all(a["sum"] != b["sum"] for a, b in zip(after, back)) and len({a["sum"] for a in after}) == 1
    same = same and moved and all(b["sum"] == wanted["sum"] for b in before + back)
    row("equal logits, also of the version that it went back to", "yes" if same else "NO")
    for p in processes:
        p.end()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
