#include "http/tls/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "http/tls/certificate.h"
#include "http/tls/internal.h"

/* Read behind what GnuTLS asks for, which is the head of a record and then its rest: one call brings the rest and the
 * next head. */
#define AHEAD_BYTES 2048

#define RECORD_BYTES 16384

/* A head of a reply waits for the bytes that follow, and goes in one record with them. */
#define JOIN_BYTES 4096

struct gb_tls {
    gnutls_session_t session;
    struct gb_tls_context *context;
    struct gb_tls_certificate *certificate; /* NULL: none */
    int fd;
    bool dry;        /* the socket has had no more, and no event since */
    bool more;       /* of what is being sent */
    bool ended;      /* the client has closed its side */
    int broken;      /* errno for all that follows; 0: none */
    size_t held;     /* bytes in a record that the socket has not taken whole */
    bool queue_held; /* they are the queue's, not the caller's */
    char *queue;     /* leaves before all that is sent */
    size_t queue_at;
    size_t queue_len; /* from queue_at on */
    char *plain;      /* decrypted, or read before; to be read */
    size_t plain_at;
    size_t plain_len; /* from plain_at on */
    size_t plain_size;
    size_t ahead_at;
    size_t ahead_len; /* from ahead_at on */
    char ahead[AHEAD_BYTES];
};

/* --- the socket --------------------------------------------------------------------------------------------------- */

static ssize_t pull(gnutls_transport_ptr_t ptr, void *room, size_t n) {
    struct gb_tls *tls = ptr;
    struct iovec iov[2] = {{room, n}, {tls->ahead, sizeof(tls->ahead)}};
    ssize_t got;

    if (tls->ahead_len > 0) {
        n = n < tls->ahead_len ? n : tls->ahead_len;
        memcpy(room, tls->ahead + tls->ahead_at, n);
        tls->ahead_at += n;
        tls->ahead_len -= n;
        return (ssize_t)n;
    }
    if (tls->dry) {
        gnutls_transport_set_errno(tls->session, EAGAIN);
        return -1;
    }
    got = readv(tls->fd, iov, 2);
    if (got < 0) {
        tls->dry = errno == EAGAIN;
        gnutls_transport_set_errno(tls->session, errno);
        return -1;
    }
    tls->dry = got > 0 && (size_t)got < n + sizeof(tls->ahead);
    tls->ahead_at = 0;
    tls->ahead_len = (size_t)got > n ? (size_t)got - n : 0;
    return (size_t)got < n ? got : (ssize_t)n;
}

static ssize_t push(gnutls_transport_ptr_t ptr, const giovec_t *iov, int count) {
    struct gb_tls *tls = ptr;
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(tls->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT | (tls->more ? MSG_MORE : 0));

    if (sent < 0)
        gnutls_transport_set_errno(tls->session, errno);
    return sent;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static int set_up(struct gb_tls *tls) {
    static const gnutls_datum_t http = {.data = (unsigned char *)"http/1.1", .size = 8};
    struct gb_tls_context *context = tls->context;

    if (gnutls_init(&tls->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return -1;
    if (gnutls_priority_set(tls->session, context->priority) < 0 ||
        gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, context->credentials) < 0 ||
        gnutls_session_ticket_enable_server(tls->session, &context->ticket_key) < 0 ||
        gnutls_alpn_set_protocols(tls->session, &http, 1, 0) < 0)
        return -1;
    gnutls_certificate_server_set_request(tls->session,
                                          context->asks_clients ? GNUTLS_CERT_REQUEST : GNUTLS_CERT_IGNORE);
    gnutls_handshake_set_timeout(tls->session, GNUTLS_INDEFINITE_TIMEOUT); /* the loop's clock ends it */
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_pull_function(tls->session, pull);
    gnutls_transport_set_vec_push_function(tls->session, push);
    return 0;
}

struct gb_tls *gb_tls_new(struct gb_tls_context *context, int fd) {
    struct gb_tls *tls = calloc(1, sizeof(*tls));

    if (!tls)
        return NULL;
    tls->context = gb_tls_context_ref(context);
    tls->fd = fd;
    if (set_up(tls) == 0)
        return tls;
    gb_tls_free(tls);
    return NULL;
}

void gb_tls_free(struct gb_tls *tls) {
    if (!tls)
        return;
    if (tls->session)
        gnutls_deinit(tls->session);
    gb_tls_certificate_drop(tls->certificate);
    gb_tls_context_unref(tls->context);
    free(tls->queue);
    free(tls->plain);
    free(tls);
}

static enum gb_tls_step refuse(struct gb_tls *tls, gnutls_alert_description_t why) {
    (void)gnutls_alert_send(tls->session, GNUTLS_AL_FATAL, why);
    return GB_TLS_FAILED;
}

enum gb_tls_step gb_tls_handshake(struct gb_tls *tls) {
    gnutls_alert_description_t why;
    int r;

    do
        r = gnutls_handshake(tls->session);
    while (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (r == GNUTLS_E_AGAIN)
        return gnutls_record_get_direction(tls->session) ? GB_TLS_WANTS_WRITE : GB_TLS_WANTS_READ;
    if (r < 0) {
        (void)gnutls_alert_send_appropriate(tls->session, r);
        return GB_TLS_FAILED;
    }
    return gb_tls_certificate_read(tls->session, &tls->certificate, &why) < 0 ? refuse(tls, why) : GB_TLS_DONE;
}

void gb_tls_end(struct gb_tls *tls) {
    if (tls->broken == 0 && tls->held == 0 && tls->queue_len == 0)
        (void)gnutls_bye(tls->session, GNUTLS_SHUT_WR);
}

const struct gb_http_certificate *gb_tls_certificate_ref(struct gb_tls *tls) {
    return tls ? gb_tls_certificate_take(tls->certificate) : NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

void gb_tls_woken(struct gb_tls *tls) {
    tls->dry = false;
}

static ssize_t break_off(struct gb_tls *tls, int code) {
    tls->broken = code;
    errno = code;
    return -1;
}

/* What is no data. A client that wants to negotiate anew is not heard: its connection ends. */
static ssize_t no_data(struct gb_tls *tls, ssize_t r) {
    switch (r) {
    case 0:
        tls->ended = true;
        return 0;
    case GNUTLS_E_AGAIN:
        errno = EAGAIN;
        return -1;
    case GNUTLS_E_REHANDSHAKE:
        (void)gnutls_alert_send(tls->session, GNUTLS_AL_FATAL, GNUTLS_A_NO_RENEGOTIATION);
        return break_off(tls, ECONNRESET);
    case GNUTLS_E_PREMATURE_TERMINATION: /* as a socket, which ends without a word */
        tls->ended = true;
        return 0;
    default:
        (void)gnutls_alert_send_appropriate(tls->session, (int)r);
        return break_off(tls, ECONNRESET);
    }
}

static ssize_t read_records(struct gb_tls *tls, char *room, size_t n) {
    size_t got = 0;
    ssize_t r;

    if (tls->ended)
        return 0;
    if (tls->broken != 0) {
        errno = tls->broken;
        return -1;
    }
    while (got < n) {
        r = gnutls_record_recv(tls->session, room + got, n - got);
        if (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED)
            continue;
        if (r <= 0) {
            r = no_data(tls, r);
            return got > 0 ? (ssize_t)got : r;
        }
        got += (size_t)r;
    }
    return (ssize_t)got;
}

static size_t read_plain(struct gb_tls *tls, void *room, size_t n) {
    n = n < tls->plain_len ? n : tls->plain_len;
    memcpy(room, tls->plain + tls->plain_at, n);
    return n;
}

static void took_plain(struct gb_tls *tls, size_t n) {
    tls->plain_at += n;
    tls->plain_len -= n;
    if (tls->plain_len > 0)
        return;
    free(tls->plain); /* most connections are idle for long */
    tls->plain = NULL;
    tls->plain_at = tls->plain_size = 0;
}

ssize_t gb_tls_recv(struct gb_tls *tls, void *room, size_t n) {
    size_t had = 0;
    ssize_t got;

    if (tls->plain_len > 0) {
        had = read_plain(tls, room, n);
        took_plain(tls, had);
        if (had == n)
            return (ssize_t)n;
    }
    got = read_records(tls, (char *)room + had, n - had);
    return got >= 0 || had == 0 ? got + (ssize_t)had : (ssize_t)had;
}

/* Room for n bytes behind those that are there. */
static int make_room(struct gb_tls *tls, size_t n) {
    char *bigger;

    if (tls->plain_at > 0)
        memmove(tls->plain, tls->plain + tls->plain_at, tls->plain_len);
    tls->plain_at = 0;
    if (tls->plain_size - tls->plain_len >= n)
        return 0;
    bigger = realloc(tls->plain, tls->plain_len + n);
    if (!bigger)
        return -1;
    tls->plain = bigger;
    tls->plain_size = tls->plain_len + n;
    return 0;
}

ssize_t gb_tls_peek(struct gb_tls *tls, void *room, size_t n) {
    ssize_t got = 0;

    if (tls->plain_len < n) {
        size_t want = n - tls->plain_len;

        if (make_room(tls, want) < 0) {
            errno = ENOMEM;
            return -1;
        }
        got = read_records(tls, tls->plain + tls->plain_len, want);
        if (got > 0)
            tls->plain_len += (size_t)got;
        if (tls->plain_len == 0) {
            int code = errno;

            took_plain(tls, 0);
            errno = code;
            return got;
        }
    }
    return (ssize_t)read_plain(tls, room, n);
}

int gb_tls_unread(struct gb_tls *tls, const void *bytes, size_t n) {
    if (n == 0)
        return 0;
    if (make_room(tls, n) < 0)
        return -1;
    memmove(tls->plain + n, tls->plain, tls->plain_len);
    memcpy(tls->plain, bytes, n);
    tls->plain_len += n;
    return 0;
}

/* What was read ahead may be a whole record, or a part of one, for whose rest an event comes. */
bool gb_tls_pending(struct gb_tls *tls) {
    char byte;

    if (tls->plain_len == 0 && tls->ahead_len > 0)
        (void)gb_tls_peek(tls, &byte, 1);
    return tls->plain_len > 0 || gnutls_record_check_pending(tls->session) > 0;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* One record. Returns as gb_tls_send. */
static ssize_t send_record(struct gb_tls *tls, const char *bytes, size_t n) {
    ssize_t r;

    do
        r = tls->held > 0 ? gnutls_record_send(tls->session, NULL, 0) : gnutls_record_send(tls->session, bytes, n);
    while (r == GNUTLS_E_INTERRUPTED);
    if (r == GNUTLS_E_AGAIN) {
        if (tls->held == 0)
            tls->held = n;
        errno = EAGAIN;
        return -1;
    }
    if (r < 0)
        return break_off(tls, EPIPE);
    if (tls->held > 0)
        r = (ssize_t)tls->held;
    tls->held = 0;
    return r;
}

void gb_tls_queue(struct gb_tls *tls, const void *bytes, size_t n) {
    char *bigger;

    if (n == 0)
        return;
    bigger = malloc(tls->queue_len + n);
    if (!bigger) {
        tls->broken = ENOMEM;
        return;
    }
    if (tls->queue_len > 0)
        memcpy(bigger, tls->queue + tls->queue_at, tls->queue_len);
    memcpy(bigger + tls->queue_len, bytes, n);
    free(tls->queue);
    tls->queue = bigger;
    tls->queue_at = 0;
    tls->queue_len += n;
}

static void drop_queue(struct gb_tls *tls) {
    free(tls->queue);
    tls->queue = NULL;
    tls->queue_len = 0;
}

/* Sends so much of the queue that the rest fits into a record together with other bytes. Returns 0, or -1 as
 * gb_tls_send. */
static int send_queue(struct gb_tls *tls) {
    while (tls->queue_held || tls->queue_len > JOIN_BYTES) {
        size_t size = tls->queue_len < RECORD_BYTES ? tls->queue_len : RECORD_BYTES;
        ssize_t r;

        tls->more = true;
        r = send_record(tls, tls->queue + tls->queue_at, size);
        tls->queue_held = r < 0;
        if (r < 0)
            return -1;
        tls->queue_at += (size_t)r;
        tls->queue_len -= (size_t)r;
    }
    return 0;
}

/* What is queued, and as much as fits beside it of the bytes. Returns as gb_tls_send. */
static ssize_t send_joined(struct gb_tls *tls, const char *bytes, size_t n) {
    char record[RECORD_BYTES];
    size_t before = tls->queue_len;
    size_t size = n < RECORD_BYTES - before ? n : RECORD_BYTES - before;
    ssize_t r;

    memcpy(record, tls->queue + tls->queue_at, before);
    memcpy(record + before, bytes, size);
    drop_queue(tls);
    r = send_record(tls, record, before + size);
    if (r < 0 && errno == EAGAIN)
        tls->held = size; /* the caller knows nothing of the others */
    return r < 0 ? -1 : r - (ssize_t)before;
}

ssize_t gb_tls_send(struct gb_tls *tls, const void *bytes, size_t n, bool more) {
    const char *at = bytes;
    size_t sent = 0;

    if (more && n <= JOIN_BYTES && tls->held == 0 && tls->queue_len + n <= JOIN_BYTES) {
        gb_tls_queue(tls, bytes, n);
        sent = n;
    }
    if (tls->broken != 0) {
        errno = tls->broken;
        return -1;
    }
    if (sent == 0 && (tls->held == 0 || tls->queue_held) && send_queue(tls) < 0)
        return -1;
    while (sent < n) {
        size_t size = n - sent < RECORD_BYTES ? n - sent : RECORD_BYTES;
        ssize_t r;

        tls->more = more || sent + size < n;
        r = tls->queue_len > 0 && tls->held == 0 ? send_joined(tls, at + sent, size)
                                                 : send_record(tls, at + sent, size);
        if (r < 0)
            return sent > 0 && errno == EAGAIN ? (ssize_t)sent : -1;
        sent += (size_t)r;
    }
    return (ssize_t)sent;
}
