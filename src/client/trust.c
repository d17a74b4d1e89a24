/* TLS of a client: what https is verified by, read and checked when the client is opened, and why there is no
 * connection by TLS. For the reason the other end is probed by GnuTLS over a connection of its own, over which no
 * request goes; libcurl's words do not name a certificate. http.c asks after an error, `gpubuf doctor` by
 * gpubuf_peer_get(). */
#include "client/trust.h"

#include <arpa/inet.h>
#include <dirent.h>
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
#include <sys/stat.h>
#include <time.h>

#include "base/encoding.h"
#include "curl/request.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define PROBE_MS 5000 /* the longest for the connection, and again for the handshake */
#define TURN_MS 100
#define ALERT_MS 500 /* in which a refusal comes: in TLS 1.3 after the handshake */
#define DAY_S 86400
#define PRIORITY "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"
#define HOST_SIZE 256

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Appends a file, with the end of a line. 0, or -1 with errno. */
static int add_file(struct gbc_text *text, const char *path) {
    FILE *file = fopen(path, "re");
    char data[8192];
    int number = 0;
    size_t n;

    if (!file)
        return -1;
    while ((n = fread(data, 1, sizeof(data), file)) > 0 && text->bytes <= FILE_BYTES_MAX)
        gbc_text_add(text, data, n);
    if (ferror(file))
        number = errno;
    else if (text->bytes > FILE_BYTES_MAX)
        number = EFBIG;
    fclose(file);
    gbc_text_add(text, "\n", 1);
    errno = number;
    return number == 0 ? 0 : -1;
}

/* The files of a folder that have certificates; others, and what cannot be read, are left out. */
static int add_folder(struct gbc_text *text, const char *folder) {
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (!dir)
        return -1;
    while ((entry = readdir(dir))) {
        struct gbc_text one = {.data = NULL};
        struct stat st;
        char *path;

        if (asprintf(&path, "%s/%s", folder, entry->d_name) < 0)
            continue;
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && add_file(&one, path) == 0 && !one.failed &&
            strstr(one.data, "-----BEGIN CERTIFICATE-----"))
            gbc_text_add(text, one.data, one.bytes);
        gbc_text_done(&one);
        free(path);
    }
    closedir(dir);
    return 0;
}

/* --- as GnuTLS takes it ------------------------------------------------------------------------------------------- */

static int add_authorities(gnutls_certificate_credentials_t to, const struct gbc_settings *set,
                           struct gpubuf_error *err) {
    gnutls_datum_t memory = {(unsigned char *)set->ca_text, (unsigned)set->ca_bytes};
    int n = set->ca_text ? gnutls_certificate_set_x509_trust_mem(to, &memory, GNUTLS_X509_FMT_PEM)
                         : gnutls_certificate_set_x509_trust_file(to, set->cacert, GNUTLS_X509_FMT_PEM);

    if (n > 0)
        return 0;
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s, of --cacert or GPUBUF_CACERT, has no certificate in PEM%s%s",
                         set->cacert, n < 0 ? ": " : "", n < 0 ? gnutls_strerror(n) : "");
}

/* Whether the key was to be in the certificate's file, which has none. */
static bool lacks_key(const struct gbc_settings *set) {
    struct gbc_text text = {.data = NULL};
    bool lacks = strcmp(set->cert, set->key) == 0 && add_file(&text, set->cert) == 0 && !text.failed &&
                 strstr(text.data, "-----BEGIN CERTIFICATE-----") && !strstr(text.data, "PRIVATE KEY-----");

    gbc_text_done(&text);
    return lacks;
}

static int add_own(gnutls_certificate_credentials_t to, const struct gbc_settings *set, struct gpubuf_error *err) {
    int r = gnutls_certificate_set_x509_key_file2(to, set->cert, set->key, GNUTLS_X509_FMT_PEM, NULL, 0);

    if (r >= 0)
        return 0;
    if (lacks_key(set))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "there is no key in %s: give it with --key or GPUBUF_KEY",
                             set->cert);
    if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s is not the key of the client's certificate %s", set->key,
                             set->cert);
    if (r == GNUTLS_E_DECRYPTION_FAILED)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "the key %s has a passphrase, which cannot be asked for: give one without", set->key);
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                         "the client's certificate %s with the key %s cannot be used: both are to be in PEM (%s)",
                         set->cert, set->key, gnutls_strerror(r));
}

static int load(const struct gbc_settings *set, bool system, gnutls_certificate_credentials_t *ret,
                struct gpubuf_error *err) {
    gnutls_certificate_credentials_t to;
    int r = 0;

    if (gnutls_certificate_allocate_credentials(&to) < 0)
        return gbc_error_memory(err);
    if (set->cacert)
        r = add_authorities(to, set, err);
    else if (system)
        gnutls_certificate_set_x509_system_trust(to); /* one without any trusts none */
    if (r == 0 && set->cert)
        r = add_own(to, set, err);
    if (r < 0)
        gnutls_certificate_free_credentials(to);
    else
        *ret = to;
    return r;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static int take(char **ret, const char *given, const char *name, struct gpubuf_error *err) {
    const char *value = given ? given : getenv(name);

    if (!value || value[0] == '\0')
        return 0;
    *ret = strdup(value);
    return *ret ? 0 : gbc_error_memory(err);
}

static int check_readable(const char *path, const char *what, struct gpubuf_error *err) {
    FILE *file = path ? fopen(path, "re") : NULL;

    if (path && !file)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s %s cannot be read: %s", what, path, strerror(errno));
    if (file)
        fclose(file);
    return 0;
}

static int take_authorities(struct gbc_settings *set, struct gpubuf_error *err) {
    struct gbc_text text = {.data = NULL};
    struct stat st;

    if (!set->cacert || stat(set->cacert, &st) < 0 || !S_ISDIR(st.st_mode))
        return check_readable(set->cacert, "the authorities' file", err);
    if (add_folder(&text, set->cacert) < 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the folder %s cannot be read: %s", set->cacert, strerror(errno));
    else if (text.failed)
        gbc_error_memory(err);
    else if (text.bytes == 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the folder %s has no file with a certificate in PEM", set->cacert);
    else {
        set->ca_text = text.data;
        set->ca_bytes = text.bytes;
        return 0;
    }
    gbc_text_done(&text);
    return -1;
}

int gbc_trust_take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    gnutls_certificate_credentials_t tried;

    if (take(&set->cacert, options->cacert, "GPUBUF_CACERT", err) < 0 ||
        take(&set->cert, options->cert, "GPUBUF_CERT", err) < 0 ||
        take(&set->key, options->key, "GPUBUF_KEY", err) < 0 || take_authorities(set, err) < 0)
        return -1;
    if (set->key && !set->cert)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the key %s needs its certificate: --cert or GPUBUF_CERT",
                             set->key);
    if (set->cert && !set->key && !(set->key = strdup(set->cert)))
        return gbc_error_memory(err);
    if (check_readable(set->cert, "the client's certificate", err) < 0 ||
        check_readable(set->key, "the client's key", err) < 0 || load(set, false, &tried, err) < 0)
        return -1;
    gnutls_certificate_free_credentials(tried);
    return 0;
}

void gbc_trust_done(struct gbc_settings *set) {
    free(set->cacert);
    free(set->ca_text);
    free(set->cert);
    free(set->key);
}

/* What a probe of the other end found. */
struct probe {
    const struct gbc_settings *set;
    struct gpubuf_peer peer;
    char host[HOST_SIZE];
    bool connected;
    bool tls;   /* there is a certificate */
    bool plain; /* HTTP answers without TLS */
    bool waits; /* whether this client's certificate is refused is waited for */
    bool refused;
    int number; /* of GnuTLS, where the handshake failed */
    int fd;
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

/* One more reason. */
static void __attribute__((format(printf, 2, 3))) add(struct gpubuf_peer *peer, const char *fmt, ...) {
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
static void say_why(struct probe *probe, unsigned status) {
    struct gpubuf_peer *peer = &probe->peer;
    unsigned said = GNUTLS_CERT_INVALID | GNUTLS_CERT_EXPIRED | GNUTLS_CERT_NOT_ACTIVATED |
                    GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_UNEXPECTED_OWNER;
    gnutls_datum_t text;

    if (status & GNUTLS_CERT_UNEXPECTED_OWNER)
        add(peer, "is for %s, and not for %s", peer->names[0] != '\0' ? peer->names : peer->subject, probe->host);
    if (status & GNUTLS_CERT_EXPIRED)
        add_expiry(peer);
    if (status & GNUTLS_CERT_NOT_ACTIVATED)
        add(peer, "is valid only from %s on: is a clock wrong?", peer->not_before);
    if (status & GNUTLS_CERT_SIGNER_NOT_FOUND)
        add_unknown(peer, probe->set->cacert);
    if ((status & ~said) == 0 && peer->why[0] != '\0')
        return;
    if (gnutls_certificate_verification_status_print(status & ~said ? status & ~said : status, GNUTLS_CRT_X509, &text,
                                                     0) >= 0) {
        add(peer, "is refused: %s", (const char *)text.data);
        gnutls_free(text.data);
    }
}

static void examine(struct probe *probe, gnutls_session_t session) {
    const gnutls_datum_t *chain;
    gnutls_x509_crt_t crt;
    unsigned status = 0;
    unsigned count = 0;
    const char *name;

    chain = gnutls_certificate_get_peers(session, &count);
    if (!chain || count == 0 || gnutls_x509_crt_init(&crt) < 0)
        return;
    if (gnutls_x509_crt_import(crt, &chain[0], GNUTLS_X509_FMT_DER) >= 0) {
        probe->tls = true;
        describe(crt, &probe->peer);
        probe->peer.names_host = gnutls_x509_crt_check_hostname(crt, probe->host) != 0;
    }
    gnutls_x509_crt_deinit(crt);
    name = gnutls_protocol_get_name(gnutls_protocol_get_version(session));
    gbc_copy(probe->peer.protocol, sizeof(probe->peer.protocol), name);
    name = gnutls_cipher_get_name(gnutls_cipher_get(session));
    gbc_copy(probe->peer.cipher, sizeof(probe->peer.cipher), probe->number == 0 ? name : "");
    probe->peer.wants_certificate = gnutls_certificate_client_get_request_status(session) != 0;
    if (gnutls_certificate_verify_peers3(session, probe->host, &status) < 0)
        add(&probe->peer, "cannot be verified");
    else if (status != 0)
        say_why(probe, status);
    probe->peer.issuer_known = (status & GNUTLS_CERT_SIGNER_NOT_FOUND) == 0;
    probe->peer.trusted = probe->peer.why[0] == '\0';
}

/* --- the handshake ------------------------------------------------------------------------------------------------ */

static ssize_t pull(gnutls_transport_ptr_t arg, void *data, size_t size) {
    struct probe *probe = arg;
    ssize_t n = recv(probe->fd, data, size, MSG_DONTWAIT);
    size_t room = sizeof(probe->first) - probe->came;

    if (n > 0 && room > 0) {
        size_t taken = (size_t)n < room ? (size_t)n : room;

        memcpy(probe->first + probe->came, data, taken);
        probe->came += taken;
    }
    return n;
}

static ssize_t push(gnutls_transport_ptr_t arg, const void *data, size_t size) {
    const struct probe *probe = arg;

    return send(probe->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint64_t patience_ms(const struct probe *probe) {
    return probe->set->connect_ms < PROBE_MS ? probe->set->connect_ms : PROBE_MS;
}

static bool over(const struct probe *probe, uint64_t end) {
    return gbc_now_ms() >= end || atomic_load(&probe->set->interrupted);
}

/* Whether the daemon ends the connection, on which nothing was asked. */
static bool ends_at_once(const struct probe *probe, gnutls_session_t session) {
    uint64_t end = gbc_now_ms() + ALERT_MS;
    char data[64];
    ssize_t r;

    while ((r = gnutls_record_recv(session, data, sizeof(data))) < 0 && gnutls_error_is_fatal((int)r) == 0) {
        struct pollfd p = {.fd = probe->fd, .events = POLLIN};

        if (over(probe, end))
            return false;
        poll(&p, 1, TURN_MS);
    }
    return r <= 0;
}

static void shake_hands(struct probe *probe, gnutls_session_t session) {
    uint64_t end = gbc_now_ms() + patience_ms(probe);
    int r;

    while ((r = gnutls_handshake(session)) < 0 && gnutls_error_is_fatal(r) == 0) {
        struct pollfd p = {.fd = probe->fd, .events = gnutls_record_get_direction(session) == 0 ? POLLIN : POLLOUT};

        if (over(probe, end)) {
            r = GNUTLS_E_TIMEDOUT;
            break;
        }
        poll(&p, 1, TURN_MS);
    }
    probe->number = r < 0 ? r : 0;
    examine(probe, session);
    if (probe->peer.wants_certificate)
        probe->refused = r < 0 || (probe->waits && ends_at_once(probe, session));
}

static bool names_host(const char *host) {
    unsigned char address[16];

    return inet_pton(AF_INET, host, address) != 1 && inet_pton(AF_INET6, host, address) != 1;
}

static int begin_session(struct probe *probe, gnutls_certificate_credentials_t trust, gnutls_session_t *ret) {
    gnutls_session_t session;

    /* As libcurl does, the certificate is shown even if the daemon names other authorities. */
    if (gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_FORCE_CLIENT_CERT) < 0)
        return -1;
    gnutls_priority_set_direct(session, PRIORITY, NULL);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, trust);
    if (names_host(probe->host))
        gnutls_server_name_set(session, GNUTLS_NAME_DNS, probe->host, strlen(probe->host));
    gnutls_transport_set_ptr(session, probe);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_transport_set_push_function(session, push);
    *ret = session;
    return 0;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static bool is_interrupted(void *arg) {
    const struct probe *probe = arg;

    return atomic_load(&probe->set->interrupted) != 0;
}

/* "http://HOST:PORT" of the daemon, and its host without brackets. */
static bool plain_url(struct probe *probe, char *ret, size_t size) {
    const char *from = strstr(probe->set->base, "://") + 3;
    size_t n = from[0] == '[' ? strcspn(from, "]") + 1 : strcspn(from, ":/");
    size_t whole = n + strcspn(from + n, "/");
    bool bare = from[0] == '[';

    if (n >= sizeof(probe->host) || n < 1)
        return false;
    snprintf(probe->host, sizeof(probe->host), "%.*s", (int)(bare ? n - 2 : n), from + bare);
    return snprintf(ret, size, "http://%.*s%s", (int)whole, from,
                    whole > n         ? ""
                    : probe->set->tls ? ":443"
                                      : ":80") < (int)size;
}

static struct gb_http_ask ask_of(struct probe *probe, const char *url) {
    struct gb_http_ask ask = {.method = "HEAD", .url = url, .stop = is_interrupted, .arg = probe};

    ask.connect_ms = (unsigned)patience_ms(probe);
    ask.total_ms = ask.connect_ms;
    return ask;
}

/* Whether HTTP answers to a request without TLS, which has no token. */
static bool answers_plainly(struct probe *probe, const char *url) {
    struct gb_http_ask ask = ask_of(probe, url);

    gb_http_ask_perform(&ask);
    return ask.status >= 100;
}

static bool spoke_http(const struct probe *probe) {
    return probe->came >= 5 && memcmp(probe->first, "HTTP/", 5) == 0;
}

/* Fills probe. A server of TLS answers to the probe with an alert, and to plain HTTP as well, if only to say that this
 * is wrong: after an alert it is not asked plainly. Returns 0, or -1 with err if this process cannot probe at all. */
static int probe_end(struct probe *probe, const struct gbc_settings *set, bool waits, struct gpubuf_error *err) {
    gnutls_certificate_credentials_t trust;
    gnutls_session_t session;
    char url[HOST_SIZE + 32];
    struct gb_http_ask ask;

    *probe = (struct probe){.set = set, .fd = -1, .waits = waits};
    if (!plain_url(probe, url, sizeof(url)))
        return 0;
    if (load(set, true, &trust, err) < 0)
        return -1;
    ask = ask_of(probe, url);
    ask.connect_only = true;
    probe->connected = gb_http_ask_perform(&ask) == GB_HTTP_OK;
    probe->fd = ask.fd;
    if (probe->connected && begin_session(probe, trust, &session) == 0) {
        shake_hands(probe, session);
        gnutls_deinit(session);
    }
    gb_http_ask_close(&ask);
    gnutls_certificate_free_credentials(trust);
    if (probe->connected && !probe->tls && !atomic_load(&set->interrupted))
        probe->plain = spoke_http(probe) ||
                       (probe->came == 0 && probe->number != GNUTLS_E_TIMEDOUT && answers_plainly(probe, url));
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

static int say_untrusted(const struct probe *probe, struct gpubuf_error *err) {
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "the certificate of %s (%s) is not trusted: it %s", probe->set->url,
                         probe->peer.subject[0] != '\0' ? probe->peer.subject : "without a subject", probe->peer.why);
}

static int say_plain(const struct probe *probe, struct gpubuf_error *err) {
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "%s is asked by TLS and answers without it: is it http://%s ?",
                         probe->set->url, strstr(probe->set->base, "://") + 3);
}

static int say_client(const struct probe *probe, struct gpubuf_error *err) {
    if (probe->set->cert)
        return gbc_error_set(err, GPUBUF_TLS_FAILED,
                             "%s does not accept the client's certificate %s: it is to be one of an authority that the "
                             "daemon names (--tls-client-ca) and not expired (\"gpubufd tls show FILE\")",
                             probe->set->url, probe->set->cert);
    return gbc_error_set(err, GPUBUF_TLS_FAILED,
                         "%s asks for a client's certificate: give one with --cert FILE and --key FILE, or GPUBUF_CERT "
                         "and GPUBUF_KEY (\"gpubufd tls client NAME\" makes one)",
                         probe->set->url);
}

int gbc_trust_explain(const struct gbc_settings *set, bool certain, bool told, const char *said,
                      struct gpubuf_error *err) {
    struct probe probe;

    if (!behind_proxy(set) && probe_end(&probe, set, true, err) == 0) {
        if (probe.tls && !probe.peer.trusted)
            return say_untrusted(&probe, err);
        if (probe.refused || (probe.peer.wants_certificate && told))
            return say_client(&probe, err);
        if (probe.plain)
            return say_plain(&probe, err);
    }
    return certain
               ? gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", set->url, said)
               : 0;
}

int gbc_trust_explain_plain(const struct gbc_settings *set, struct gpubuf_error *err) {
    struct probe probe;

    if (set->socket || atomic_load(&set->spoken) || behind_proxy(set) || probe_end(&probe, set, false, err) < 0 ||
        !probe.tls)
        return 0;
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "%s is asked without TLS and speaks TLS: give https://%s", set->url,
                         strstr(set->base, "://") + 3);
}

/* --- the public function ------------------------------------------------------------------------------------------ */

int gpubuf_peer_get(gpubuf_client *client, struct gpubuf_peer *ret, struct gpubuf_error *err) {
    const struct gbc_settings *set = &client->set;
    struct probe probe;

    gbc_error_init(err);
    if (!set->tls)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s is no address of https", set->url);
    if (probe_end(&probe, set, false, err) < 0)
        return -1;
    if (probe.tls) {
        *ret = probe.peer;
        return 0;
    }
    if (atomic_load(&set->interrupted))
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (!probe.connected)
        return gbc_error_set(err, GPUBUF_CANNOT_CONNECT, "%s cannot be reached", set->url);
    if (probe.plain)
        return say_plain(&probe, err);
    return gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", set->url,
                         probe.number != 0 ? gnutls_strerror(probe.number) : "it shows no certificate");
}
