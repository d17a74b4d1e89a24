"""Certificates of a private authority, and sockets that are encrypted. With GB_E2E_TLS=1 daemons of tests listen for
TLS, and their clients use it: the tests are the same."""
import atexit
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading

RECORD = 16384
EVERYWHERE = os.environ.get("GB_E2E_TLS") == "1"
_made = []


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    """An authority in a folder; each name gives NAME.pem and NAME.key. days: before 0 it has expired."""

    def __init__(self, folder, name="test authority"):
        self.folder = str(folder)
        self.cert, self.key = self.path("ca.pem"), self.path("ca.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.cert, "-subj", f"/CN={name}", "-days", 30)

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name, subject, names, usage="serverAuth", days=10,
             key=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
        request, extensions = self.path(name + ".csr"), self.path(name + ".ext")
        cert, file = self.path(name + ".pem"), self.path(name + ".key")
        openssl("req", "-newkey", *key, "-nodes", "-keyout", file, "-out", request, "-subj", subject)
        with open(extensions, "w") as f:
            f.write(f"subjectAltName={names}\nextendedKeyUsage={usage}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-out", cert,
                "-days", days, "-extfile", extensions)
        os.chmod(file, 0o600)
        return cert, file

    def server(self, name="server"):
        return self.make(name, "/CN=localhost", "DNS:localhost,IP:127.0.0.1,IP:::1")

    def context(self, cert=None, key=None):
        context = ssl.create_default_context(cafile=self.cert)
        if cert:
            context.load_cert_chain(cert, key)
        return context


def authority():
    """One for the run."""
    if not _made:
        folder = tempfile.mkdtemp(prefix="gbe-tls-")
        os.chmod(folder, 0o755)
        atexit.register(shutil.rmtree, folder, True)
        _made.append(Authority(folder))
        _made[0].pair = _made[0].server()
        if EVERYWHERE:  # of curl, requests and others
            os.environ.update({name: _made[0].cert for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE",
                                                                "REQUESTS_CA_BUNDLE")})
    return _made[0]


def options():
    """Of a daemon, in place of its plain address."""
    cert, key = authority().pair
    return ("--listen", "none", "--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)


class Secured:
    """Used like a socket. Its records are made apart from it, so that a test decides which bytes leave when. session:
    of another one that is to be resumed. One thread may send while another one reads."""

    def __init__(self, sock, context, name="localhost", session=None, shake=True):
        self.plain, self.into, self.out = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_hostname=name, session=session)
        self.cut = False  # the daemon has closed without saying so
        self.lock = threading.RLock()
        if shake:
            self._until(self.tls.do_handshake)

    def _flush(self):
        data = self.out.read()
        if data:
            self.plain.sendall(data)

    def _until(self, step, *args):
        while True:
            with self.lock:
                try:
                    result = step(*args)
                    self._flush()
                    return result
                except ssl.SSLWantReadError:
                    self._flush()
            data = self.plain.recv(1 << 18)
            with self.lock:
                if data:
                    self.into.write(data)
                else:
                    self.into.write_eof()

    def encrypted(self, data, size=RECORD):
        """The data in records of that many bytes."""
        view = memoryview(data)
        with self.lock:
            for at in range(0, len(view), size):
                self.tls.write(view[at:at + size])
            return self.out.read()

    def sendall(self, data, size=RECORD):
        for at in range(0, len(data), 1 << 20):
            self.plain.sendall(self.encrypted(data[at:at + (1 << 20)], size))

    def recv(self, n):
        try:
            return self._until(self.tls.read, n)
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLEOFError:
            self.cut = True
            return b""

    def last_words(self):
        """The record with which TLS ends, for our side alone."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.out.read()

    def shutdown(self, how):
        if how == socket.SHUT_WR:
            self.plain.sendall(self.last_words())
        self.plain.shutdown(how)

    def __getattr__(self, name):  # settimeout, setsockopt, close
        return getattr(self.plain, name)


def wrap(sock, host="127.0.0.1"):
    return Secured(sock, authority().context(), host)
