"""TLS: what https is verified by, and the reasons why there is no connection that can be trusted."""
from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from typing import Any, Callable, Dict, Mapping, Optional

from ._address import Address, is_loopback
from .errors import BadArgument, TlsFailed

PROBE_S = 5.0  # for each connection that probes for a reason
BEGIN = "-----BEGIN CERTIFICATE-----"
EXPIRED, NOT_YET, WRONG_NAME, UNKNOWN = (10,), (9,), (62, 64), (18, 19, 20, 21)  # X509_V_ERR_... of OpenSSL
NO_CHECK_TIME, PARTIAL_CHAIN = 0x200000, 0x80000  # X509_V_FLAG_...: a certificate that is not trusted can be read then
# of a daemon that does not accept the client's certificate
ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")


def check_token_road(address: Address) -> None:
    """Raises BadArgument if the token would go over plain http to another machine."""
    if not address.tls and not is_loopback(address):
        raise BadArgument(f"the token is not sent over plain http to {address}, which may be another machine: use "
                          "https://, or permit it with plain_token=True or GPUBUF_PLAIN_TOKEN=1")


def explain_plain(address: Address) -> None:
    """Raises TlsFailed if TLS is spoken where plain HTTP was asked."""
    if address.unix is None and not address.tls and _speaks_tls(address):
        raise TlsFailed(f"{address} is asked without TLS and speaks TLS: give {address._replace(tls=True)}")


class Trust:
    """The authorities that are trusted, and this client's certificate. Read once; raises BadArgument if that fails."""

    def __init__(self, cacert: Optional[str], cert: Optional[str], key: Optional[str]) -> None:
        self.cacert = _given(cacert, "GPUBUF_CACERT")
        self.cert = _given(cert, "GPUBUF_CERT")
        self.key = _given(key, "GPUBUF_KEY")
        if self.key is not None and self.cert is None:
            raise BadArgument(f"the key {self.key} needs its certificate: cert= or GPUBUF_CERT")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cacert is None:
            self.context.load_default_certs()
        else:
            _load_authorities(self.context, self.cacert)
        self._show_certificate(self.context)

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        if self.cert is None:
            return
        try:
            # without it OpenSSL would ask on the terminal
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
        except (OSError, ValueError) as e:
            for path in (self.cert, self.key):
                if path is not None and not os.access(path, os.R_OK):
                    raise BadArgument(f"{path}, of the client's certificate, cannot be read") from e
            if self.key is None and _lacks_key(self.cert):
                raise BadArgument(f"there is no key in {self.cert}: give it with key= or GPUBUF_KEY") from e
            raise BadArgument(f"the client's certificate {self.cert} with the key {self.key or self.cert} cannot be "
                              f"used: they are to belong together, in PEM, the key without a passphrase ({e})") from e

    def explain(self, address: Address, error: Exception, answers_plainly: Callable[[Address], bool]) -> None:
        """Raises TlsFailed if the error is one of TLS, of its certificates, or of a daemon without TLS, which
        answers_plainly finds out."""
        if isinstance(error, ssl.SSLCertVerificationError):
            raise TlsFailed(self._untrusted(address, error)) from error
        reason = str(getattr(error, "reason", None) or "")
        if isinstance(error, ssl.SSLError) and "ALERT" in reason and any(word in reason for word in ALERTS):
            raise self.refused(address) from error
        ended = isinstance(error, (ssl.SSLError, ConnectionResetError, http.client.RemoteDisconnected))
        if ended and "ALERT" not in reason and not isinstance(error, socket.timeout) and answers_plainly(address):
            raise TlsFailed(
                f"{address} is asked by TLS and answers without it: is it {address._replace(tls=False)} ?") from error
        if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, socket.timeout)):
            raise TlsFailed(f"no connection by TLS (1.2 at least) to {address}: {error}") from error

    def refused(self, address: Address) -> TlsFailed:
        if self.cert is not None:
            return TlsFailed(f"{address} does not accept the client's certificate {self.cert}: it is to be one of an "
                             'authority that the daemon names (--tls-client-ca) and not expired ("gpubufd tls show '
                             'FILE")')
        return TlsFailed(f"{address} asks for a client's certificate: give one with cert= and key=, or GPUBUF_CERT and "
                         'GPUBUF_KEY ("gpubufd tls client NAME" makes one)')

    def _untrusted(self, address: Address, error: ssl.SSLCertVerificationError) -> str:
        seen = self._certificate_of(address)
        subject, issuer = _dn(seen.get("subject")), _dn(seen.get("issuer"))
        code, why = error.verify_code, f"is refused: {error.verify_message}"
        names = ", ".join(str(value) for _, value in seen.get("subjectAltName", ())) or subject
        if code in WRONG_NAME and names:
            why = f"is for {names}, and not for {address.host}"
        elif code in EXPIRED and seen:
            ago = time.time() - ssl.cert_time_to_seconds(seen["notAfter"])
            why = (f"expired at {_moment(seen['notAfter'])}, {round(ago / 86400)} days ago" if ago >= 0 else
                   "comes with the certificate of an authority that has expired")
        elif code in NOT_YET and seen:
            why = f"is valid only from {_moment(seen['notBefore'])} on: is a clock wrong?"
        elif code in UNKNOWN:
            why = f"was issued by {issuer or 'an authority'}, " + (
                f"which is not among the authorities of {self.cacert}" if self.cacert is not None else
                "which is not known here: give its certificate with cacert= or GPUBUF_CACERT")
        return f"the certificate of {address}{f' ({subject})' if subject else ''} is not trusted: it {why}"

    def _certificate_of(self, address: Address) -> Dict[str, Any]:
        """What stands in the daemon's certificate, which is not verified; empty if it cannot be had. Python shows it of
        a certificate that is trusted, so that it is first fetched, and then trusted by a context of its own."""
        try:
            blind = _blind()
            self._show_certificate(blind)
            data = _handshake(address, blind)
            if not data:
                return {}
            reading = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            reading.check_hostname = False
            reading.verify_flags |= NO_CHECK_TIME | PARTIAL_CHAIN
            reading.load_verify_locations(cadata=data)
            self._show_certificate(reading)
            seen: Dict[str, Any] = {}
            _handshake(address, reading, seen)
            return seen
        except (OSError, ValueError):
            return {}


# --- files ------------------------------------------------------------------------------------------------------------


def _given(value: Optional[str], name: str) -> Optional[str]:
    return (os.fspath(value) if value is not None else os.environ.get(name)) or None


def _lacks_key(path: str) -> bool:
    """True if the file has a certificate and no key."""
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    return BEGIN in text and "PRIVATE KEY-----" not in text


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Of a file, or of all files of a folder that have certificates."""
    try:
        texts = []
        names = [os.path.join(path, name) for name in sorted(os.listdir(path))] if os.path.isdir(path) else [path]
        for name in names:
            if os.path.isfile(name) or name == path:
                with open(name, encoding="utf-8", errors="replace") as f:
                    texts.append(f.read())
        found = [text for text in texts if BEGIN in text]
        if not found:
            raise BadArgument(f"{path}, of cacert or GPUBUF_CACERT, has no certificate in PEM")
        for text in found:
            context.load_verify_locations(cadata="".join(c for c in text if ord(c) < 128))
    except BadArgument:
        raise
    except (OSError, ValueError) as e:
        raise BadArgument(f"{path}, of cacert or GPUBUF_CACERT, cannot be used: {e}") from e


# --- looks ------------------------------------------------------------------------------------------------------------


def _blind() -> ssl.SSLContext:
    """Verifies nothing: only for probes, over which no request goes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _handshake(address: Address, context: ssl.SSLContext, ret_seen: Optional[Dict[str, Any]] = None) -> Optional[bytes]:
    """The daemon's certificate; ret_seen gets what stands in it if the context verifies."""
    with socket.create_connection((address.host, address.port), PROBE_S) as plain:
        with context.wrap_socket(plain, server_hostname=address.host) as wrapped:
            if ret_seen is not None:
                ret_seen.update(wrapped.getpeercert() or {})
            return wrapped.getpeercert(True)


def _speaks_tls(address: Address) -> bool:
    try:
        _handshake(address, _blind())
        return True
    except ssl.SSLError as e:
        return "ALERT" in str(e.reason or "")
    except (OSError, ValueError):
        return False


def _moment(text: str) -> str:
    """A time of OpenSSL, such as "Jun  1 00:00:00 2025 GMT", as RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ssl.cert_time_to_seconds(text)))


def _dn(names: Optional[Any]) -> str:
    return ",".join(f"{_SHORT.get(key, key)}={value}" for part in names or () for key, value in part)


_SHORT: Mapping[str, str] = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU",
                             "countryName": "C"}
