"""Alternatives to gpubufd: nginx, Redis, and aiohttp with torch."""
import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile

from .servers import GIB, Missing, Server, free_port, system_program


class Nginx(Server):
    name = "nginx"

    CONF = """
daemon off; worker_processes {workers}; pid {folder}/pid; error_log {folder}/log error; {user}
events {{ worker_connections 8192; }}
http {{
    access_log off; default_type application/octet-stream; etag on;
    client_max_body_size 0; client_body_buffer_size 1m; client_body_temp_path {shm}/tmp;
    proxy_temp_path {folder}/t1; fastcgi_temp_path {folder}/t2; uwsgi_temp_path {folder}/t3; scgi_temp_path {folder}/t4;
    keepalive_requests 1000000000; keepalive_timeout 3600; tcp_nodelay on; output_buffers 2 512k;
    server {{
        listen 127.0.0.1:{port} {ssl} backlog=4096;
        {certificate}
        root {shm};
        location /dav/ {{ dav_methods PUT DELETE; create_full_put_path on; sendfile off; }}
        location /sendfile/ {{ alias {shm}/dav/; sendfile on; }}
        location = /small {{ default_type application/json; {small} }}
    }}
}}
"""

    # The work of the daemon: the same version, suite and resumption.
    CERTIFICATE = """
        ssl_certificate {cert}; ssl_certificate_key {key};
        ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; ssl_ecdh_curve X25519;
        ssl_session_cache shared:bench:16m; ssl_session_tickets on; ssl_buffer_size 16k;
"""
    answer_bytes = 1024

    def workers(self):
        """Two, as on machines of two cores; with TLS, which is all computing, as many as the daemon has loops."""
        return min(len(os.sched_getaffinity(0)), 8) if self.case.tls else 2

    def certificate(self):
        if not self.case.tls:
            return ""
        cert, key = self.settings.certificate()
        return self.CERTIFICATE.format(cert=cert, key=key)

    def start(self):
        nginx = system_program("nginx", "nginx-light")
        self.port = self.tls_port = free_port()
        self.shm = tempfile.mkdtemp(prefix="nginx-", dir=self.settings.shm)
        for name in ("dav", "tmp"):
            os.mkdir(os.path.join(self.shm, name))
        conf = os.path.join(self.folder, "nginx.conf")
        with open(conf, "w") as f:
            f.write(self.CONF.format(folder=self.folder, shm=self.shm, port=self.port, small=self.small(),
                                     workers=self.workers(), ssl="ssl" if self.case.tls else "",
                                     certificate=self.certificate(), user="user root;" if os.geteuid() == 0 else ""))
        self.spawn([nginx, "-p", self.folder, "-e", self.log_path, "-c", conf])
        self.wait_until(self.accepts, "listening")

    def small(self):
        """A constant answer; nginx takes words of less than 4 KiB, and several of them through variables."""
        lines, left = [], self.answer_bytes
        while left > 0:
            lines.append("set $part%d %s;" % (len(lines), "x" * min(left, 2000)))
            left -= 2000
        return " ".join(lines) + ' return 200 "' + "".join("$part%d" % i for i in range(len(lines))) + '";'

    def put_target(self):
        return ["put"] + self.where() + ["--path", "/dav/%d"]

    def get_target(self):
        return ["get"] + self.where() + ["--path", "/dav/%d"]

    def get_sendfile_target(self):
        return ["get", "--port", self.port, "--path", "/sendfile/%d"]

    def poll_target(self):
        return ["poll"] + self.where() + ["--path", "/small"]

    def poll_file_target(self):
        path = os.path.join(self.shm, "dav", "small")
        with open(path, "w") as f:
            f.write("x" * 1024)
        return ["poll", "--port", self.port, "--path", "/dav/small", "--etag"]

    def clean(self):
        if self.case.mode == "put":
            for name in os.listdir(os.path.join(self.shm, "dav")):
                os.unlink(os.path.join(self.shm, "dav", name))

    def stop(self):
        super().stop()
        if hasattr(self, "shm"):
            shutil.rmtree(self.shm, ignore_errors=True)


class Redis(Server):
    name = "redis"
    persistence = ("--appendonly", "no")

    def start(self):
        self.port = free_port()
        self.begin()

    def begin(self):
        unpacked = os.path.join(self.settings.build, "redis")
        redis = system_program("redis-server", "redis-server", unpacked)
        libraries = ":".join(glob.glob(os.path.join(unpacked, "usr", "lib", "*-linux-gnu")))
        self.spawn([redis, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self.persistence,
                    "--proto-max-bulk-len", "8gb", "--client-query-buffer-limit", "8gb", "--dir", self.folder],
                   env={**os.environ, "LD_LIBRARY_PATH": libraries} if redis.startswith(unpacked) else None)
        self.wait_until(self.accepts, "listening")

    def put_target(self):
        return ["redis", "--port", self.port, "--path", "bench-%d"]

    def clean(self):
        if self.case.bytes * self.case.connections >= GIB:
            with socket.create_connection(("127.0.0.1", self.port), 30) as s:
                s.sendall(b"*1\r\n$8\r\nFLUSHALL\r\n")
                s.recv(64)


class Aiohttp(Server):
    """aiohttp, uvloop and torch, with the tensor on the device."""

    name = "aiohttp"

    def start(self):
        python = self.settings.python or sys.executable
        missing = subprocess.run([python, "-c", "import aiohttp, uvloop, torch"], capture_output=True, text=True)
        if missing.returncode:
            raise Missing("no aiohttp + uvloop + torch: " + missing.stderr.strip().rsplit("\n", 1)[-1])
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "aiohttp_server.py")
        self.spawn_and_read_port([python, script, "--bytes", str(self.case.bytes)])

    def put_target(self):
        return ["put", "--port", self.port, "--path", "/buffers/%d"]

    def get_target(self):
        return ["get", "--port", self.port, "--path", "/buffers/%d"]

    def get_streamed_target(self):
        return ["get", "--port", self.port, "--path", "/buffers/%d?streamed=1"]

    def poll_target(self):
        return ["poll", "--port", self.port, "--path", "/stats"]
