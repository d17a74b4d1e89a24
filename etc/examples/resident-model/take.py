#!/usr/bin/env python3
"""An inference process that takes its model from gpubufd: the weights are mapped, not read and not copied.

    take.py CONFIG NAME

CONFIG is the folder with config.json. NAME is the buffer, or the model that `gpubuf put DIR NAME --kind shared` has
uploaded. GPUBUF_URL or GPUBUF_SOCKET, and GPUBUF_SESSION, say where.

Makes the module on the device meta, gives it the mapped tensors, computes the first token, and prints one line of JSON
with the times. With --serve it then answers each line of token ids with the next one, moves over to another version
when NAME is switched to one, and ends with the end of standard input."""
import argparse
import json
import sys
import time

STARTED = time.perf_counter()


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="the folder with the model's config.json")
    parser.add_argument("name", help="the model's name at gpubufd")
    parser.add_argument("--pretrained", action="store_true", help="read the files of CONFIG instead, for comparison")
    parser.add_argument("--serve", action="store_true", help="go on with the lines of standard input")
    parser.add_argument("--ids", default="1,2,3,4,5,6,7,8", help="token ids of the first prompt (%(default)s)")
    return parser.parse_args()


def version(client, name):
    """What tells the version that the name has now from others. A buffer NAME comes first, as it does for load_into."""
    import gpubuf
    try:
        return client.info(name)["generation"]
    except gpubuf.BufferNotFound:
        return client.info(name + ".index")["generation"]


class Resident:
    def __init__(self, config, name):
        import gpubuf
        import torch
        import transformers
        self.torch, self.name, self.config = torch, name, config
        self.make = transformers.AutoModelForCausalLM.from_config
        self.client = gpubuf.Client()
        self.take()

    def take(self):
        self.version = version(self.client, self.name)
        with self.torch.device("meta"):
            model = self.make(self.config, dtype=self.config.dtype)
        loaded = self.client.load_into(model, self.name)
        device = next(model.parameters()).device
        # What no file has, as the frequencies of rotary embeddings, is computed anew from the config.
        for module in {name.rpartition(".")[0] for name in loaded.on_meta}:
            old = model.get_submodule(module)
            model.set_submodule(module, type(old)(config=self.config).to(device))
        self.model, self.device = model.eval(), device

    def is_current(self):
        return version(self.client, self.name) == self.version

    def again(self):
        self.model = None  # the former version's memory is held as long as its tensors
        self.take()


class Pretrained:
    def __init__(self, config, device):
        import torch
        import transformers
        self.torch, self.device, self.version = torch, device, 0
        self.model = transformers.AutoModelForCausalLM.from_pretrained(config, dtype="auto").to(device).eval()

    def is_current(self):
        return True


def next_token(taken, ids):
    torch = taken.torch
    with torch.inference_mode():
        logits = taken.model(torch.tensor([ids], device=taken.device)).logits[0, -1].float()
    return int(logits.argmax()), float(logits.double().sum()), float(logits.abs().max())


def main():
    args = parse_args()
    try:
        import torch
        import transformers
        import gpubuf
        assert gpubuf
    except ImportError as e:
        sys.exit(f"take.py needs torch, transformers, numpy and gpubuf (PYTHONPATH=src/python): {e}")
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(args.config)
    transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]  # imports the model's module
    gpu = torch.cuda.is_available()
    torch.zeros(1, device="cuda" if gpu else "cpu")
    ready = time.perf_counter()
    taken = Pretrained(args.config, "cuda" if gpu else "cpu") if args.pretrained else Resident(config, args.name)
    if gpu:
        torch.cuda.synchronize()
    loaded = time.perf_counter()
    token, total, most = next_token(taken, [int(i) for i in args.ids.split(",")])
    done = time.perf_counter()
    print(json.dumps({"libraries_s": round(ready - STARTED, 3), "load_s": round(loaded - ready, 3),
                      "token_s": round(done - loaded, 3), "token": token, "sum": total, "most": most,
                      "allocated": torch.cuda.memory_allocated() if gpu else 0, "version": taken.version}), flush=True)
    for line in sys.stdin if args.serve else ():
        if not taken.is_current():
            taken.again()
        token, total, most = next_token(taken, [int(i) for i in line.split(",")])
        print(json.dumps({"token": token, "sum": total, "most": most, "version": taken.version}), flush=True)


if __name__ == "__main__":
    main()
