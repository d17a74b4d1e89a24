"""A store that talks S3, for tests: it checks the signature of each request, the checksum of each part and of the whole object, and
breaks where a test asks for it. SigV4 is computed here from its description, and not by what gpubuf uses."""
import base64
import hashlib
import hmac
import re
import sys
import threading
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from checkpoint_server import crc32c

KEY_ID, SECRET, REGION, BUCKET = "AKTEST", "secret/with+signs=", "eu-test-1", "tests"


def crc_text(data):
    return base64.b64encode(bytes.fromhex(crc32c(data))).decode()


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method, path, query, headers, signed, date, payload, secret=SECRET):
    """path and query as they came; signed: the names of the headers that count, in their order."""
    pairs = sorted(tuple(p.partition("=")[::2]) for p in query.split("&")) if query else []
    lines = [method, path, "&".join(f"{k}={v}" for k, v in pairs)]
    lines += [f"{name}:{' '.join(headers[name].split())}" for name in signed] + ["", ";".join(signed), payload]
    scope = f"{date[:8]}/{REGION}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


class Refusal(Exception):
    def __init__(self, status, code, message="no", **headers):
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, headers


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", head=False, **headers):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if "Content-Length" not in names:
            names["Content-Length"] = str(len(body))
        for name, value in names.items():
            self.send_header(name, value)
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def check(self):
        said = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)",
                            self.headers.get("Authorization", ""))
        if not said:
            raise Refusal(403, "AccessDenied", "no signature")
        key_id, _, region, signed, given = said.groups()
        headers = {name.lower(): value for name, value in self.headers.items()}
        signed = signed.split(";")
        if key_id != KEY_ID:
            raise Refusal(403, "InvalidAccessKeyId")
        if region != REGION:
            raise Refusal(400, "AuthorizationHeaderMalformed", f"the region is {region}", x_amz_bucket_region=REGION)
        missing = [name for name in headers if name.startswith("x-amz-") and name not in signed]
        if missing or "host" not in signed:
            raise Refusal(403, "AccessDenied", f"not signed: {missing}")
        payload = headers.get("x-amz-content-sha256")
        if payload != "UNSIGNED-PAYLOAD":
            raise Refusal(400, "InvalidRequest", "x-amz-content-sha256")
        path, _, query = self.path.partition("?")
        if signature(self.command, path, query, headers, signed, headers["x-amz-date"], payload) != given:
            raise Refusal(403, "SignatureDoesNotMatch")
        if self.server.token and headers.get("x-amz-security-token") != self.server.token:
            raise Refusal(403, "InvalidToken")

    def serve(self):
        store = self.server
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        _, bucket, *rest = urllib.parse.unquote(path).split("/", 2)
        key = rest[0] if rest else ""
        self.said = (self.command, key, asked)
        with store.lock:
            store.requests.append(self.said)
        expects = self.headers.get("Expect")
        try:
            if self.command in ("PUT", "POST") and not expects:
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.check()
            if bucket != BUCKET:
                raise Refusal(404, "NoSuchBucket")
            store.before(self)
            if self.command in ("PUT", "POST") and expects:
                self.send_response_only(100)
                self.end_headers()
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            store.during(self)
            getattr(self, "on_" + self.command.lower())(key, asked)
        except Refusal as no:
            text = f"<?xml version=\"1.0\"?><Error><Code>{no.code}</Code><Message>{escape(no.message)}</Message></Error>"
            self.close_connection = self.close_connection or bool(expects)
            self.answer(no.status, text, head=self.command == "HEAD", **no.headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    # --- objects ---
    def on_get(self, key, asked):
        store = self.server
        if "uploads" in asked:
            return self.list_uploads(asked.get("prefix", ""))
        if "uploadId" in asked:
            return self.list_parts(key, asked)
        with store.lock:
            data = store.objects.get(key)
        if data is None:
            raise Refusal(404, "NoSuchKey")
        ranged = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        body = data[int(ranged.group(1)):] if ranged else data
        cut = store.cut_get(self)
        if cut is None:
            return self.answer(206 if ranged else 200, body, head=self.command == "HEAD", ETag='"x"', x_amz_checksum_crc32c=store.sums.get(key, ""))
        self.answer(206 if ranged else 200, body[:cut], Content_Length=str(len(body)))
        self.close_connection = True
        return None

    def on_head(self, key, asked):
        self.on_get(key, {})

    def on_put(self, key, asked):
        store, body = self.server, self.body
        said = self.headers.get("x-amz-checksum-crc32c")
        if said and said != crc_text(body):
            raise Refusal(400, "BadDigest")
        if "partNumber" not in asked:
            with store.lock:
                store.objects[key] = body
                if said:
                    store.sums[key] = said
            return self.answer(200, ETag='"whole"')
        with store.lock:
            upload = store.uploads.get(asked["uploadId"])
            if upload is None or upload["key"] != key:
                raise Refusal(404, "NoSuchUpload")
            if not said:
                raise Refusal(400, "InvalidRequest", "a part without a checksum")
            etag = f'"{uuid.uuid4().hex}"'
            upload["parts"][int(asked["partNumber"])] = (etag, body, said)
        return self.answer(200, ETag=etag, x_amz_checksum_crc32c=said)

    def on_delete(self, key, asked):
        with self.server.lock:
            if "uploadId" in asked:
                if self.server.uploads.pop(asked["uploadId"], None) is None:
                    raise Refusal(404, "NoSuchUpload")
            else:
                self.server.objects.pop(key, None)
        self.answer(204)

    # --- uploads in parts ---
    def on_post(self, key, asked):
        store = self.server
        if "uploads" in asked:
            kind = self.headers.get("x-amz-checksum-type", "COMPOSITE")
            if kind == "FULL_OBJECT" and not store.whole_sums:
                raise Refusal(501, "NotImplemented", "x-amz-checksum-type")
            upload = "id/with+signs=" + uuid.uuid4().hex
            with store.lock:
                store.uploads[upload] = {"key": key, "parts": {}, "kind": kind}
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        with store.lock:
            upload = store.uploads.get(asked.get("uploadId"))
        if upload is None:
            raise Refusal(404, "NoSuchUpload")
        told = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]+)</ETag><ChecksumCRC32C>([^<]+)</ChecksumCRC32C></Part>", self.body.decode())
        for number, etag, crc in told:
            if upload["parts"].get(int(number), (None,) * 3)[::2] != (etag, crc):
                raise Refusal(400, "InvalidPart")
        pieces = [upload["parts"][int(number)][1] for number, _, _ in told]
        if any(len(piece) < 5 << 20 for piece in pieces[:-1]):
            raise Refusal(400, "EntityTooSmall")
        data = b"".join(pieces)
        said = self.headers.get("x-amz-checksum-crc32c")
        if upload["kind"] == "FULL_OBJECT" and (self.headers.get("x-amz-checksum-type") != "FULL_OBJECT" or said != crc_text(data)):
            raise Refusal(400, "BadDigest", "the whole object")
        if upload["kind"] != "FULL_OBJECT" and said:
            raise Refusal(400, "InvalidRequest", "a checksum of the whole object")
        with store.lock:
            store.uploads.pop(asked["uploadId"], None)
            store.objects[key] = data
            if said:
                store.sums[key] = said
        return self.answer(200, f"<CompleteMultipartUploadResult><Key>{escape(key)}</Key></CompleteMultipartUploadResult>")

    def list_uploads(self, prefix):
        with self.server.lock:
            rows = "".join(f"<Upload><Key>{escape(u['key'])}</Key><UploadId>{i}</UploadId></Upload>"
                           for i, u in self.server.uploads.items() if u["key"].startswith(prefix))
        self.answer(200, f"<ListMultipartUploadsResult><Prefix>{escape(prefix)}</Prefix>{rows}</ListMultipartUploadsResult>")

    def list_parts(self, key, asked):
        """Two at a time, so that clients turn pages."""
        with self.server.lock:
            upload = self.server.uploads.get(asked["uploadId"])
            if upload is None:
                raise Refusal(404, "NoSuchUpload")
            left = sorted(n for n in upload["parts"] if n > int(asked.get("part-number-marker", 0)))
            rows = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{escape(upload['parts'][n][0], {chr(34): '&quot;'})}</ETag>"
                           f"<Size>{len(upload['parts'][n][1])}</Size><ChecksumCRC32C>{upload['parts'][n][2]}</ChecksumCRC32C></Part>"
                           for n in left[:2])
        more = f"<NextPartNumberMarker>{left[1]}</NextPartNumberMarker>" if len(left) > 2 else ""
        self.answer(200, f"<ListPartsResult><ChecksumType>{upload['kind']}</ChecksumType>{rows}"
                         f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}</ListPartsResult>")


class Store(ThreadingHTTPServer):
    """before and during may be replaced by a test: they get the handler before and after the body came, and may raise Refusal. cut_get
    may say after how many bytes the answer to a GET breaks."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.requests = threading.Lock(), []
        self.objects, self.sums, self.uploads = {}, {}, {}
        self.token, self.whole_sums = None, True
        self.before = self.during = lambda handler: None
        self.cut_get = lambda handler: None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that leaves is what some tests are about; all else is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def environment(self, **more):
        return {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": self.url, **more}

    def count(self, method, key=None, *parameters):
        """Requests of that kind so far; key: what it contains."""
        with self.lock:
            return sum(1 for m, k, asked in self.requests if m == method and (key is None or key in k) and all(p in asked for p in parameters))

    def forget(self):
        with self.lock:
            self.requests.clear()

    def end(self):
        self.shutdown()
        self.server_close()
