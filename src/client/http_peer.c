#include "client/http_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/encoding.h"
#include "client/trust.h"

#define LOOK_MS 5000 /* the longest for the connection, and again for the handshake */
#define TURN_MS 100
#define ALERT_MS 500 /* in which a refusal comes: in TLS 1.3 after the handshake */
#define DAY_S 86400
#define PRIORITY "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"
#define HOST_SIZE 256

/* What a look found. */
struct look {
    const struct gbc_settings *set;
    struct gpubuf_peer peer;
    char host[HOST_SIZE];
    bool connected;
    bool tls;   /* there is a certificate */
    bool plain; /* HTTP answers without TLS */
    bool waits; /* whether this client's certificate is refused is waited for */
    bool refused;
    int number; /* of GnuTLS, where the handshake failed */
    curl_socket_t fd;
    char first[8]; /* of what came */
    size_t came;
};

/* --- texts -------------------------------------------------------------------------------------------------------- */

static void time_text(time_t at, char *ret, size_t size) {
    struct tm parts;

    if (!gmtime_r(&at, &parts) || strftime(ret, size, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        ret[0] = '\0';
}

/* One of the names of a certificate. Returns false behind the last. */
static bool name_at(gnutls_x509_crt_t crt, unsigned i, char *ret, size_t size) {
    unsigned char name[HOST_SIZE];
    size_t n = sizeof(name) - 1;
    int type = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);

    if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return false;
    gbc_copy(ret, size, "?");
    if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16)) {
        inet_ntop(n == 4 ? AF_INET : AF_INET6, name, ret, (socklen_t)size);
    } else if (type == GNUTLS_SAN_DNSNAME || type == GNUTLS_SAN_URI || type == GNUTLS_SAN_RFC822NAME) {
        name[n] = '\0';
        gbc_copy(ret, size, (const char *)name);
    }
    return true;
}

static void names_text(gnutls_x509_crt_t crt, char *ret, size_t size) {
    char name[HOST_SIZE];
    size_t at = 0;
    unsigned i;

    ret[0] = '\0';
    for (i = 0; name_at(crt, i, name, sizeof(name)) && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%s", i > 0 ? ", " : "", name);
}

static void fingerprint_text(gnutls_x509_crt_t crt, char *ret) {
    unsigned char bytes[32];
    size_t n = sizeof(bytes);

    if (gnutls_x509_crt_get_fingerprint(crt, GNUTLS_DIG_SHA256, bytes, &n) == 0)
        gb_hex(bytes, n, ret);
}

/* --- the certificate ---------------------------------------------------------------------------------------------- */

static void describe(gnutls_x509_crt_t crt, struct gpubuf_peer *peer) {
    size_t n = sizeof(peer->subject);

    if (gnutls_x509_crt_get_dn(crt, peer->subject, &n) < 0)
        peer->subject[0] = '\0';
    n = sizeof(peer->issuer);
    if (gnutls_x509_crt_get_issuer_dn(crt, peer->issuer, &n) < 0)
        peer->issuer[0] = '\0';
    names_text(crt, peer->names, sizeof(peer->names));
    fingerprint_text(crt, peer->fingerprint);
    time_text(gnutls_x509_crt_get_activation_time(crt), peer->not_before, sizeof(peer->not_before));
    time_text(gnutls_x509_crt_get_expiration_time(crt), peer->not_after, sizeof(peer->not_after));
    peer->left_s = (int64_t)gnutls_x509_crt_get_expiration_time(crt) - (int64_t)time(NULL);
}

static void add(struct gpubuf_peer *peer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One more reason. */
static void add(struct gpubuf_peer *peer, const char *fmt, ...) {
    size_t at = strlen(peer->why);
    va_list ap;

    if (at > 0 && at < sizeof(peer->why))
        at += (size_t)snprintf(peer->why + at, sizeof(peer->why) - at, "; it ");
    if (at >= sizeof(peer->why))
        return;
    va_start(ap, fmt);
    vsnprintf(peer->why + at, sizeof(peer->why) - at, fmt, ap);
    va_end(ap);
}

static void add_expiry(struct gpubuf_peer *peer) {
    if (peer->left_s < 0)
        add(peer, "expired at %s, %lld days ago", peer->not_after, (long long)((-peer->left_s + DAY_S / 2) / DAY_S));
    else
        add(peer, "comes with the certificate of an authority that has expired");
}

static void add_unknown(struct gpubuf_peer *peer, const char *cacert) {
    if (cacert)
        add(peer, "was issued by %s, which is not among the authorities of %s", peer->issuer, cacert);
    else
        add(peer, "was issued by %s, which is not known here: give its certificate with --cacert FILE or GPUBUF_CACERT",
            peer->issuer);
}

/* status: what GnuTLS found wrong. Each thing is said, and what would be right. */
static void say_why(struct look *look, unsigned status) {
    struct gpubuf_peer *peer = &look->peer;
    unsigned said = GNUTLS_CERT_INVALID | GNUTLS_CERT_EXPIRED | GNUTLS_CERT_NOT_ACTIVATED |
                    GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_UNEXPECTED_OWNER;
    gnutls_datum_t text;

    if (status & GNUTLS_CERT_UNEXPECTED_OWNER)
        add(peer, "is for %s, and not for %s", peer->names[0] != '\0' ? peer->names : peer->subject, look->host);
    if (status & GNUTLS_CERT_EXPIRED)
        add_expiry(peer);
    if (status & GNUTLS_CERT_NOT_ACTIVATED)
        add(peer, "is valid only from %s on: is a clock wrong?", peer->not_before);
    if (status & GNUTLS_CERT_SIGNER_NOT_FOUND)
        add_unknown(peer, look->set->cacert);
    if ((status & ~said) == 0 && peer->why[0] != '\0')
        return;
    if (gnutls_certificate_verification_status_print(status & ~said ? status & ~said : status, GNUTLS_CRT_X509, &text,
                                                     0) >= 0) {
        add(peer, "is refused: %s", (const char *)text.data);
        gnutls_free(text.data);
    }
}

static void examine(struct look *look, gnutls_session_t session) {
    const gnutls_datum_t *chain;
    gnutls_x509_crt_t crt;
    unsigned status = 0;
    unsigned count = 0;
    const char *name;

    chain = gnutls_certificate_get_peers(session, &count);
    if (!chain || count == 0 || gnutls_x509_crt_init(&crt) < 0)
        return;
    if (gnutls_x509_crt_import(crt, &chain[0], GNUTLS_X509_FMT_DER) >= 0) {
        look->tls = true;
        describe(crt, &look->peer);
        look->peer.names_host = gnutls_x509_crt_check_hostname(crt, look->host) != 0;
    }
    gnutls_x509_crt_deinit(crt);
    name = gnutls_protocol_get_name(gnutls_protocol_get_version(session));
    gbc_copy(look->peer.protocol, sizeof(look->peer.protocol), name);
    name = gnutls_cipher_get_name(gnutls_cipher_get(session));
    gbc_copy(look->peer.cipher, sizeof(look->peer.cipher), look->number == 0 ? name : "");
    look->peer.wants_certificate = gnutls_certificate_client_get_request_status(session) != 0;
    if (gnutls_certificate_verify_peers3(session, look->host, &status) < 0)
        add(&look->peer, "cannot be verified");
    else if (status != 0)
        say_why(look, status);
    look->peer.issuer_known = (status & GNUTLS_CERT_SIGNER_NOT_FOUND) == 0;
    look->peer.trusted = look->peer.why[0] == '\0';
}

/* --- the handshake ------------------------------------------------------------------------------------------------ */

static ssize_t pull(gnutls_transport_ptr_t arg, void *data, size_t size) {
    struct look *look = arg;
    ssize_t n = recv(look->fd, data, size, MSG_DONTWAIT);
    size_t room = sizeof(look->first) - look->came;

    if (n > 0 && room > 0) {
        size_t taken = (size_t)n < room ? (size_t)n : room;

        memcpy(look->first + look->came, data, taken);
        look->came += taken;
    }
    return n;
}

static ssize_t push(gnutls_transport_ptr_t arg, const void *data, size_t size) {
    const struct look *look = arg;

    return send(look->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint64_t patience_ms(const struct look *look) {
    return look->set->connect_ms < LOOK_MS ? look->set->connect_ms : LOOK_MS;
}

static bool over(const struct look *look, uint64_t end) {
    return gbc_now_ms() >= end || atomic_load(&look->set->interrupted);
}

/* Whether the daemon ends the connection, on which nothing was asked. */
static bool ends_at_once(const struct look *look, gnutls_session_t session) {
    uint64_t end = gbc_now_ms() + ALERT_MS;
    char data[64];
    ssize_t rc;

    while ((rc = gnutls_record_recv(session, data, sizeof(data))) < 0 && gnutls_error_is_fatal((int)rc) == 0) {
        struct pollfd p = {.fd = look->fd, .events = POLLIN};

        if (over(look, end))
            return false;
        poll(&p, 1, TURN_MS);
    }
    return rc <= 0;
}

static void shake_hands(struct look *look, gnutls_session_t session) {
    uint64_t end = gbc_now_ms() + patience_ms(look);
    int rc;

    while ((rc = gnutls_handshake(session)) < 0 && gnutls_error_is_fatal(rc) == 0) {
        struct pollfd p = {.fd = look->fd, .events = gnutls_record_get_direction(session) == 0 ? POLLIN : POLLOUT};

        if (over(look, end)) {
            rc = GNUTLS_E_TIMEDOUT;
            break;
        }
        poll(&p, 1, TURN_MS);
    }
    look->number = rc < 0 ? rc : 0;
    examine(look, session);
    if (look->peer.wants_certificate)
        look->refused = rc < 0 || (look->waits && ends_at_once(look, session));
}

static bool names_host(const char *host) {
    unsigned char address[16];

    return inet_pton(AF_INET, host, address) != 1 && inet_pton(AF_INET6, host, address) != 1;
}

static int begin_session(struct look *look, gnutls_certificate_credentials_t trust, gnutls_session_t *ret) {
    gnutls_session_t session;

    /* As libcurl does, the certificate is shown even if the daemon names other authorities. */
    if (gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_FORCE_CLIENT_CERT) < 0)
        return -1;
    gnutls_priority_set_direct(session, PRIORITY, NULL);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, trust);
    if (names_host(look->host))
        gnutls_server_name_set(session, GNUTLS_NAME_DNS, look->host, strlen(look->host));
    gnutls_transport_set_ptr(session, look);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_transport_set_push_function(session, push);
    *ret = session;
    return 0;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static int on_progress(void *arg, curl_off_t down, curl_off_t came, curl_off_t up, curl_off_t went) {
    const struct look *look = arg;

    (void)down;
    (void)came;
    (void)up;
    (void)went;
    return atomic_load(&look->set->interrupted);
}

/* "http://HOST:PORT" of the daemon, and its host without brackets. */
static bool plain_url(struct look *look, char *ret, size_t size) {
    const char *from = strstr(look->set->base, "://") + 3;
    size_t n = from[0] == '[' ? strcspn(from, "]") + 1 : strcspn(from, ":/");
    size_t whole = n + strcspn(from + n, "/");
    bool bare = from[0] == '[';

    if (n >= sizeof(look->host) || n < 1)
        return false;
    snprintf(look->host, sizeof(look->host), "%.*s", (int)(bare ? n - 2 : n), from + bare);
    return snprintf(ret, size, "http://%.*s%s", (int)whole, from,
                    whole > n        ? ""
                    : look->set->tls ? ":443"
                                     : ":80") < (int)size;
}

static CURL *begin_connection(struct look *look, const char *url) {
    CURL *easy = curl_easy_init();
    uint64_t ms = patience_ms(look);

    if (!easy)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ms);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0l);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, look);
    return easy;
}

/* Whether HTTP answers to a request without TLS, which has no token. */
static bool answers_plainly(struct look *look, const char *url) {
    CURL *easy = begin_connection(look, url);
    long status = 0;

    if (!easy)
        return false;
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1l);
    curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    return status >= 100;
}

static bool spoke_http(const struct look *look) {
    return look->came >= 5 && memcmp(look->first, "HTTP/", 5) == 0;
}

/* Fills look. A server of TLS answers to the look with an alert, and to plain HTTP as well, if only to say that this
 * is wrong: after an alert it is not asked plainly. Returns 0, or -1 with err if this process cannot look at all. */
static int look_at(struct look *look, const struct gbc_settings *set, bool waits, struct gpubuf_error *err) {
    gnutls_certificate_credentials_t trust;
    gnutls_session_t session;
    char url[HOST_SIZE + 32];
    CURL *easy;

    *look = (struct look){.set = set, .fd = CURL_SOCKET_BAD, .waits = waits};
    if (!plain_url(look, url, sizeof(url)))
        return 0;
    if (gbc_trust_load(set, &trust, err) < 0)
        return -1;
    easy = begin_connection(look, url);
    if (easy) {
        curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1l);
        look->connected = curl_easy_perform(easy) == CURLE_OK &&
                          curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &look->fd) == CURLE_OK &&
                          look->fd != CURL_SOCKET_BAD;
    }
    if (look->connected && begin_session(look, trust, &session) == 0) {
        shake_hands(look, session);
        gnutls_deinit(session);
    }
    curl_easy_cleanup(easy);
    gnutls_certificate_free_credentials(trust);
    if (look->connected && !look->tls && !atomic_load(&set->interrupted))
        look->plain =
            spoke_http(look) || (look->came == 0 && look->number != GNUTLS_E_TIMEDOUT && answers_plainly(look, url));
    return 0;
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

static bool behind_proxy(const struct gbc_settings *set) {
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]) && !set->local; i++) {
        const char *value = getenv(names[i]);

        if (value && value[0] != '\0')
            return true;
    }
    return false;
}

static int say_untrusted(const struct look *look, struct gpubuf_error *err) {
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "the certificate of %s (%s) is not trusted: it %s", look->set->url,
                         look->peer.subject[0] != '\0' ? look->peer.subject : "without a subject", look->peer.why);
}

static int say_plain(const struct look *look, struct gpubuf_error *err) {
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "%s is asked by TLS and answers without it: is it http://%s ?",
                         look->set->url, strstr(look->set->base, "://") + 3);
}

static int say_client(const struct look *look, struct gpubuf_error *err) {
    if (look->set->cert)
        return gbc_error_set(err, GPUBUF_TLS_FAILED,
                             "%s does not accept the client's certificate %s: it is to be one of an authority that the "
                             "daemon names (--tls-client-ca) and not expired (\"gpubufd tls show FILE\")",
                             look->set->url, look->set->cert);
    return gbc_error_set(err, GPUBUF_TLS_FAILED,
                         "%s asks for a client's certificate: give one with --cert FILE and --key FILE, or GPUBUF_CERT "
                         "and GPUBUF_KEY (\"gpubufd tls client NAME\" makes one)",
                         look->set->url);
}

static bool of_tls(CURLcode code) {
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CIPHER || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_SSL_INVALIDCERTSTATUS || code == CURLE_SSL_ENGINE_NOTFOUND;
}

/* Nothing that is HTTP came on a new connection. */
static bool speechless(struct gbc_conn *conn, CURLcode code, bool last) {
    bool silent = code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
    long made = 0;

    if (conn->reply.status != 0 || conn->answered)
        return false;
    curl_easy_getinfo(conn->easy, CURLINFO_NUM_CONNECTS, &made);
    return made > 0 && ((silent && (conn->set->tls || last)) || code == CURLE_UNSUPPORTED_PROTOCOL ||
                        code == CURLE_WEIRD_SERVER_REPLY);
}

/* certain: TLS is the cause. told: the answer speaks of a certificate. */
static int explain_tls(struct gbc_conn *conn, bool certain, bool told, const char *said, struct gpubuf_error *err) {
    const struct gbc_settings *set = conn->set;
    struct look look;

    if (!behind_proxy(set) && look_at(&look, set, true, err) == 0) {
        if (look.tls && !look.peer.trusted)
            return say_untrusted(&look, err);
        if (look.refused || (look.peer.wants_certificate && told))
            return say_client(&look, err);
        if (look.plain)
            return say_plain(&look, err);
    }
    return certain
               ? gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", set->url, said)
               : 0;
}

static int explain_plain(const struct gbc_settings *set, struct gpubuf_error *err) {
    struct look look;

    if (set->socket || atomic_load(&set->spoken) || behind_proxy(set) || look_at(&look, set, false, err) < 0 ||
        !look.tls)
        return 0;
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "%s is asked without TLS and speaks TLS: give https://%s", set->url,
                         strstr(set->base, "://") + 3);
}

int gbc_peer_explain(struct gbc_conn *conn, CURLcode code, bool last, const char *said, struct gpubuf_error *err) {
    bool certain = of_tls(code);

    if (!certain && !speechless(conn, code, last))
        return 0;
    return conn->set->tls ? explain_tls(conn, certain, false, said, err) : explain_plain(conn->set, err);
}

int gbc_peer_other_scheme(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *type = conn->reply.type.bytes > 0 ? conn->reply.type.data : "";
    const char *body = conn->reply.body.bytes > 0 ? conn->reply.body.data : "";
    bool told = strcasestr(body, "certificate") != NULL;

    if (strstr(type, "json") && (conn->set->tls || !strstr(body, "malformed_request")))
        return 0;
    if (conn->set->tls)
        return told ? explain_tls(conn, false, true, "", err) : 0;
    return explain_plain(conn->set, err);
}

/* --- the public look ---------------------------------------------------------------------------------------------- */

int gpubuf_peer_get(gpubuf_client *client, struct gpubuf_peer *ret, struct gpubuf_error *err) {
    const struct gbc_settings *set = &client->set;
    struct look look;

    gbc_error_init(err);
    if (!set->tls)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s is no address of https", set->url);
    if (look_at(&look, set, false, err) < 0)
        return -1;
    if (look.tls) {
        *ret = look.peer;
        return 0;
    }
    if (atomic_load(&set->interrupted))
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (!look.connected)
        return gbc_error_set(err, GPUBUF_CANNOT_CONNECT, "%s cannot be reached", set->url);
    if (look.plain)
        return say_plain(&look, err);
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", set->url,
                         look.number != 0 ? gnutls_strerror(look.number) : "it shows no certificate");
}
