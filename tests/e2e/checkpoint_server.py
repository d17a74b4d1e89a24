"""What a backup needs of a daemon, and no more: the routes of checkpoints, with files that a test makes, and breaks where it wants."""
import functools
import json
import re
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import values

DATA_AT = 4096
crc32c = functools.lru_cache(256)(values.crc32c)  # of the same bytes again and again


def tensor_file(name, data):
    header = json.dumps({name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return (DATA_AT - 8).to_bytes(8, "little") + header.ljust(DATA_AT - 8) + data


def checkpoint(name, buffers, session="default"):
    """buffers: {name: (id, generation, data)}. The files of the checkpoint, manifest and index among them, by their names."""
    files, entries = {}, []
    for number, (buffer, (identity, generation, data)) in enumerate(buffers.items(), 1):
        file = f"{number:05d}.safetensors"
        files[file] = tensor_file(buffer, data)
        entries.append({"buffer": buffer, "file": file, "id": identity, "generation": generation, "run": "00c0ffee", "dtype": "uint8",
                        "shape": [len(data)], "bytes": len(data), "crc32c": crc32c(data), "size": len(files[file]),
                        "file_crc32c": crc32c(files[file]), "kind": "device", "durability": "sync", "mirrored": False, "sealed": False,
                        "labels": {}})
    total = sum(e["bytes"] for e in entries)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {"total_size": total},
                                                        "weight_map": {e["buffer"]: e["file"] for e in entries}}).encode()
    files["manifest.json"] = json.dumps({"version": 1, "name": name, "session": session, "as_of": "2026-11-24T10:00:00.000Z",
                                         "bytes": total, "entries": entries}).encode()
    return files


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def problem(self, status, code, detail):
        self.answer(status, {"type": f"/problems/{code}", "code": code, "title": code, "status": status, "detail": detail},
                    Content_Type="application/problem+json")

    def serve(self):
        daemon = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = [urllib.parse.unquote(p) for p in self.path.strip("/").split("/")]
        if parts == ["v1", "storage"]:
            return self.problem(403, "forbidden", "the scope admin is needed")
        assert parts[:2] == ["v1", "checkpoints"], self.path
        name, rest = parts[2], parts[3:]
        with daemon.lock:
            daemon.requests.append((self.command, *parts[2:]))
            files = daemon.checkpoints.get(name)
            if self.command == "PUT":
                return self.put(name, rest[1], body)
            if files is None:
                return self.problem(404, "checkpoint_not_found", f'there is no checkpoint "{name}"')
            if self.command == "POST":
                daemon.restored.append((name, json.loads(body)))
                return self.answer(200, {"buffers": len(files) - 2, "bytes": 1})
            if not rest:
                return self.answer(200, {"name": name, "session": "default", "state": "complete" if "manifest.json" in files else "incomplete"})
            data = files[rest[1]]
        data = daemon.damage(rest[1], data)
        ranged = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not ranged:
            return self.answer(200, data)
        daemon.before_range(rest[1], int(ranged.group(1)))
        return self.answer(206, data[int(ranged.group(1)):int(ranged.group(2)) + 1], Content_Type="application/octet-stream")

    do_GET = do_POST = do_PUT = serve

    def put(self, name, file, body):
        files = self.server.checkpoints.setdefault(name, {})
        if "manifest.json" in files:
            return self.problem(409, "checkpoint_exists", f'there is a checkpoint "{name}" already')
        if file == "manifest.json":
            manifest = json.loads(body)
            assert manifest["name"] == name
            for entry in manifest["entries"]:
                data = files.get(entry["file"])
                if data is None or len(data) != entry["size"] or crc32c(data) != entry["file_crc32c"]:
                    return self.problem(409, "checkpoint_incomplete", f'{entry["file"]} is not what the manifest says')
        files[file] = body
        return self.answer(201, {"size": len(body), "crc32c": crc32c(body)})


class Daemon(ThreadingHTTPServer):
    """damage and before_range may be replaced by a test: the first changes what a file is read as; the second is called before a range
    of a file is sent."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.requests, self.checkpoints, self.restored = threading.RLock(), [], {}, []
        self.damage = lambda file, data: data
        self.before_range = lambda file, at: None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that leaves is what some tests are about; all else is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def count(self, method, file):
        with self.lock:
            return sum(1 for request in self.requests if request[0] == method and request[-1] == file)

    def end(self):
        self.shutdown()
        self.server_close()
