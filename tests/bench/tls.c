#include "tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "util.h"

/* A record has 16 KiB; a system call moves several of them. */
#define AHEAD_BYTES ((size_t)128 << 10)

struct bench_tls_side {
    bool server;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priority;
    gnutls_datum_t ticket_key;
};

struct bench_tls {
    gnutls_session_t session;
    int fd;
    bool dry; /* the socket has had no more during this call */
    size_t in_at;
    size_t in_have; /* up to here */
    size_t out_have;
    char in[AHEAD_BYTES];
    char out[AHEAD_BYTES];
};

static void must(int r, const char *what) {
    if (r < 0)
        bench_die("%s: %s", what, gnutls_strerror(r));
}

static struct bench_tls_side *side_new(const char *priority, bool server) {
    struct bench_tls_side *side = calloc(1, sizeof *side);

    if (!side)
        bench_die("no memory");
    side->server = server;
    must(gnutls_priority_init(&side->priority, priority, NULL), priority);
    must(gnutls_certificate_allocate_credentials(&side->credentials), "credentials");
    return side;
}

struct bench_tls_side *bench_tls_client(const char *priority) {
    return side_new(priority, false);
}

struct bench_tls_side *bench_tls_server(const char *priority, const char *cert, const char *key) {
    struct bench_tls_side *side = side_new(priority, true);

    must(gnutls_certificate_set_x509_key_file(side->credentials, cert, key, GNUTLS_X509_FMT_PEM), cert);
    must(gnutls_session_ticket_key_generate(&side->ticket_key), "ticket key");
    return side;
}

static bool flush(struct bench_tls *tls) {
    size_t bytes = tls->out_have;

    tls->out_have = 0;
    return !bytes || bench_send_all(tls->fd, tls->out, bytes);
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *room, size_t bytes) {
    struct bench_tls *tls = ptr;
    ssize_t got;

    /* What was pushed leaves before the answer is waited for. */
    if (tls->out_have && !flush(tls)) {
        gnutls_transport_set_errno(tls->session, EPIPE);
        return -1;
    }
    if (tls->in_at == tls->in_have) {
        do
            got = recv(tls->fd, tls->in, sizeof tls->in, 0);
        while (got < 0 && errno == EINTR);
        if (got <= 0) {
            tls->dry = got < 0;
            gnutls_transport_set_errno(tls->session, got < 0 ? errno : 0);
            return got;
        }
        tls->in_at = 0;
        tls->in_have = (size_t)got;
    }
    if (bytes > tls->in_have - tls->in_at)
        bytes = tls->in_have - tls->in_at;
    memcpy(room, tls->in + tls->in_at, bytes);
    tls->in_at += bytes;
    return (ssize_t)bytes;
}

/* Leaves with what follows: at the end of bench_tls_send, and before the peer's answer is waited for. */
static ssize_t push(gnutls_transport_ptr_t ptr, const void *data, size_t bytes) {
    struct bench_tls *tls = ptr;

    if (bytes > sizeof tls->out - tls->out_have && !flush(tls)) {
        gnutls_transport_set_errno(tls->session, EPIPE);
        return -1;
    }
    if (bytes > sizeof tls->out)
        bytes = sizeof tls->out;
    memcpy(tls->out + tls->out_have, data, bytes);
    tls->out_have += bytes;
    return (ssize_t)bytes;
}

static bool set_up(struct bench_tls *tls, struct bench_tls_side *side, const gnutls_datum_t *ticket) {
    if (gnutls_init(&tls->session,
                    (side->server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    gnutls_handshake_set_timeout(tls->session, GNUTLS_INDEFINITE_TIMEOUT); /* the socket's own ends it */
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_pull_function(tls->session, pull);
    gnutls_transport_set_push_function(tls->session, push);
    if (gnutls_priority_set(tls->session, side->priority) < 0 ||
        gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, side->credentials) < 0)
        return false;
    if (side->server)
        return gnutls_session_ticket_enable_server(tls->session, &side->ticket_key) >= 0;
    return !ticket || !ticket->size || gnutls_session_set_data(tls->session, ticket->data, ticket->size) >= 0;
}

struct bench_tls *bench_tls_open(struct bench_tls_side *side, int fd, const gnutls_datum_t *ticket) {
    struct bench_tls *tls = malloc(sizeof *tls); /* its buffers stay untouched until they are used */
    int r;

    if (!tls)
        bench_die("no memory");
    tls->session = NULL;
    tls->fd = fd;
    tls->in_at = tls->in_have = tls->out_have = 0;
    if (!set_up(tls, side, ticket))
        bench_die("no TLS session");
    do {
        tls->dry = false;
        r = gnutls_handshake(tls->session);
    } while (r < 0 && !gnutls_error_is_fatal(r) && !tls->dry);
    if (r == GNUTLS_E_SUCCESS && flush(tls))
        return tls;
    r = tls->dry ? errno : EPROTO;
    gnutls_deinit(tls->session);
    free(tls);
    errno = r;
    return NULL;
}

void bench_tls_close(struct bench_tls *tls) {
    if (gnutls_bye(tls->session, GNUTLS_SHUT_WR) == GNUTLS_E_SUCCESS)
        flush(tls);
    gnutls_deinit(tls->session);
    free(tls);
}

bool bench_tls_resumed(const struct bench_tls *tls) {
    return gnutls_session_is_resumed(tls->session) != 0;
}

void bench_tls_ticket(struct bench_tls *tls, gnutls_datum_t *ticket) {
    gnutls_datum_t fresh;

    /* Without a ticket gnutls_session_get_data2 would wait for one. */
    if (!(gnutls_session_get_flags(tls->session) & GNUTLS_SFLAGS_SESSION_TICKET) ||
        gnutls_session_get_data2(tls->session, &fresh) < 0)
        return;
    gnutls_free(ticket->data);
    *ticket = fresh;
}

bool bench_tls_send(struct bench_tls *tls, const void *data, size_t bytes, bool more) {
    const char *next = data;

    while (bytes) {
        ssize_t n = gnutls_record_send(tls->session, next, bytes);

        if (n == GNUTLS_E_INTERRUPTED || n == GNUTLS_E_AGAIN)
            continue;
        if (n < 0) {
            errno = EPROTO;
            return false;
        }
        next += n;
        bytes -= (size_t)n;
    }
    return more || flush(tls);
}

ssize_t bench_tls_recv(struct bench_tls *tls, void *room, size_t bytes) {
    ssize_t n;

    tls->dry = false;
    errno = 0;
    /* A ticket is a record too, behind which GnuTLS asks to be called again. */
    do
        n = gnutls_record_recv(tls->session, room, bytes);
    while (n == GNUTLS_E_INTERRUPTED || (n == GNUTLS_E_AGAIN && !tls->dry));
    if (n >= 0)
        return n;
    if (n == GNUTLS_E_PREMATURE_TERMINATION) /* as a socket, which ends without a word */
        return 0;
    errno = n == GNUTLS_E_AGAIN ? EAGAIN : EPROTO;
    return -1;
}

bool bench_tls_pending(const struct bench_tls *tls) {
    return tls->in_at < tls->in_have || gnutls_record_check_pending(tls->session) > 0;
}
