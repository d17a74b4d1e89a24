"""Certificates of a private authority, and sockets that are encrypted. With GB_E2E_TLS=1 daemons of tests listen for TLS,
and their clients use it: the tests are the same."""
import atexit
import os
import shutil
import ssl
import subprocess
import tempfile

EVERYWHERE = os.environ.get("GB_E2E_TLS") == "1"
_made = []


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    """An authority in a folder; each name gives NAME.pem and NAME.key. days: before 0 it has expired."""

    def __init__(self, folder, name="test authority"):
        self.folder = str(folder)
        self.cert, self.key = self.path("ca.pem"), self.path("ca.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out",
                self.cert, "-subj", f"/CN={name}", "-days", 30)

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name, subject, names, usage="serverAuth", days=10):
        request, extensions = self.path(name + ".csr"), self.path(name + ".ext")
        cert, key = self.path(name + ".pem"), self.path(name + ".key")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj",
                subject)
        with open(extensions, "w") as f:
            f.write(f"subjectAltName={names}\nextendedKeyUsage={usage}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-out", cert,
                "-days", days, "-extfile", extensions)
        os.chmod(key, 0o600)
        return cert, key

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
            os.environ.update({name: _made[0].cert for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")})
    return _made[0]


def options():
    """Of a daemon, in place of its plain address."""
    cert, key = authority().pair
    return ("--listen", "none", "--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)


def wrap(sock, host="127.0.0.1"):
    return authority().context().wrap_socket(sock, server_hostname=host)
