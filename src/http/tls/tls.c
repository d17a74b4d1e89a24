/* One connection over TLS by GnuTLS, with functions that stand beside recv and send. Records are decrypted straight
 * into the caller's room, and bytes that could not be sent are given again by the caller. The front, transfer loops and
 * the feed call this; one thread at a time uses a connection. */
#include "http/tls/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "http/tls/context.h"

/* Read behind what GnuTLS asks for, which is the head of a record and then its rest: one call brings the rest and the
 * next head. */
#define AHEAD_BYTES 2048

#define RECORD_BYTES 16384

/* A head of a reply waits for the bytes that follow, and goes in one record with them. */
#define JOIN_BYTES 4096

/* One read ends after that many records, and one more for each 8 KiB that it has room for: a client that sends a byte a
 * record does not hold others up for long. */
#define READ_RECORDS 256

/* Records in a row that bring no bytes: warnings, new keys, padding. */
#define SILENT_MAX 32

/* Of a handshake: warnings in all, which TLS 1.2 has in plain text; and what one call does, before the loop's other
 * connections continue: a client may send its messages in records of a byte. */
#define WARNINGS_MAX 8
#define HANDSHAKE_RECORDS 64

struct gb_tls {
    gnutls_session_t session;
    struct gb_tls_context *context;
    struct gb_tls_certificate *certificate; /* NULL: none */
    struct gb_tls_context *verifier;        /* by whose authorities it was verified; NULL: the context's */
    int fd;
    bool dry;          /* the socket has had no more, and no event since */
    bool at_end;       /* of the socket */
    bool shaken;       /* the handshake is done, as far as GnuTLS is concerned */
    bool more;         /* of what is being sent */
    bool ended;        /* the client has closed its side */
    int broken;        /* errno of every later call; 0: no error yet */
    unsigned warnings; /* in the handshake */
    unsigned silent;
    size_t held; /* bytes of the caller in a record that the socket has not taken whole */
    char *out;   /* encrypted, and not taken by the socket */
    size_t out_at;
    size_t out_len; /* from out_at on */
    char *queue;    /* leaves before all that is sent */
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
    if (got == 0) {
        tls->at_end = true;
        errno = EAGAIN; /* GnuTLS would send nothing after an end that comes without a word */
    }
    if (got <= 0) {
        tls->dry = errno == EAGAIN;
        gnutls_transport_set_errno(tls->session, errno);
        return -1;
    }
    tls->dry = (size_t)got < n + sizeof(tls->ahead);
    tls->ahead_at = 0;
    tls->ahead_len = (size_t)got > n ? (size_t)got - n : 0;
    return (size_t)got < n ? got : (ssize_t)n;
}

/* Behind what waits already. The first `sent` bytes have left. */
static int keep_out(struct gb_tls *tls, const giovec_t *iov, int count, size_t sent, size_t total) {
    char *bigger = malloc(tls->out_len + total - sent);
    int i;

    if (!bigger)
        return -1;
    if (tls->out_len > 0)
        memcpy(bigger, tls->out + tls->out_at, tls->out_len);
    for (i = 0; i < count; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;

        memcpy(bigger + tls->out_len, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        tls->out_len += iov[i].iov_len - skip;
        sent -= skip;
    }
    free(tls->out);
    tls->out = bigger;
    tls->out_at = 0;
    return 0;
}

/* Takes all. If GnuTLS held a part of a record itself, it would take a change of keys for the rest of that record. */
static ssize_t push(gnutls_transport_ptr_t ptr, const giovec_t *iov, int count) {
    struct gb_tls *tls = ptr;
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
    ssize_t sent = 0;
    size_t total = 0;
    int i;

    for (i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (tls->out_len == 0)
        sent = sendmsg(tls->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT | (tls->more ? MSG_MORE : 0));
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        sent = 0;
    if (sent >= 0 && (size_t)sent < total && keep_out(tls, iov, count, (size_t)sent, total) < 0) {
        errno = ENOMEM;
        sent = -1;
    }
    if (sent < 0)
        gnutls_transport_set_errno(tls->session, errno);
    return sent < 0 ? -1 : (ssize_t)total;
}

/* Returns 0: nothing waits any more; -1 with errno. */
static int flush_out(struct gb_tls *tls) {
    while (tls->out_len > 0) {
        ssize_t sent = send(tls->fd, tls->out + tls->out_at, tls->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        tls->out_at += (size_t)sent;
        tls->out_len -= (size_t)sent;
    }
    free(tls->out);
    tls->out = NULL;
    return 0;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static int said_hello(gnutls_session_t session) {
    const struct gb_tls *tls = gnutls_session_get_ptr(session);

    return gb_tls_choose_name(session, tls->context);
}

static int set_up(struct gb_tls *tls) {
    static const gnutls_datum_t http[] = {{.data = (unsigned char *)"http/1.1", .size = 8},
                                          {.data = (unsigned char *)"http/1.0", .size = 8}};
    struct gb_tls_context *context = tls->context;

    if (gnutls_init(&tls->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return -1;
    if (gnutls_priority_set(tls->session, context->priority) < 0 ||
        gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, context->credentials) < 0 ||
        gnutls_session_ticket_enable_server(tls->session, &context->ticket_key) < 0 ||
        gnutls_alpn_set_protocols(tls->session, http, 2, GNUTLS_ALPN_MANDATORY | GNUTLS_ALPN_SERVER_PRECEDENCE) < 0)
        return -1;
    gnutls_certificate_server_set_request(tls->session,
                                          context->asks_clients ? GNUTLS_CERT_REQUEST : GNUTLS_CERT_IGNORE);
    gb_tls_certificate_guard(tls->session);
    gnutls_session_set_ptr(tls->session, tls);
    if (context->named)
        gnutls_handshake_set_post_client_hello_function(tls->session, said_hello);
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
    gb_tls_context_unref(tls->verifier);
    gb_tls_context_unref(tls->context);
    free(tls->out);
    free(tls->queue);
    free(tls->plain);
    free(tls);
}

static enum gb_tls_step refuse(struct gb_tls *tls, gnutls_alert_description_t why) {
    (void)gnutls_alert_send(tls->session, GNUTLS_AL_FATAL, why);
    return GB_TLS_FAILED;
}

/* What the client waits for has left, or it leaves first. */
static enum gb_tls_step wait_for(struct gb_tls *tls, enum gb_tls_step step) {
    if (flush_out(tls) == 0)
        return step;
    return errno == EAGAIN ? GB_TLS_WANTS_WRITE : GB_TLS_FAILED;
}

/* A record has brought nothing, or a part of a message, and others may follow. GnuTLS says AGAIN after a new key,
 * too. */
static bool is_silent(const struct gb_tls *tls, ssize_t r) {
    return r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED ||
           (r == GNUTLS_E_AGAIN && (tls->ahead_len > 0 || !tls->dry));
}

/* Continues as far as there are records, up to a bound. */
static int shake(struct gb_tls *tls) {
    unsigned left = HANDSHAKE_RECORDS;
    int r;

    do {
        r = gnutls_handshake(tls->session);
        if (r == GNUTLS_E_WARNING_ALERT_RECEIVED && ++tls->warnings > WARNINGS_MAX)
            return GNUTLS_E_TOO_MANY_EMPTY_PACKETS;
    } while (is_silent(tls, r) && --left > 0);
    return r;
}

enum gb_tls_step gb_tls_handshake(struct gb_tls *tls) {
    gnutls_alert_description_t why;
    int r = 0;

    if (!tls->shaken)
        r = shake(tls);
    if (is_silent(tls, r))
        return wait_for(tls, GB_TLS_WANTS_WRITE); /* what was read ahead has no event of its own */
    if (r == GNUTLS_E_AGAIN && !tls->at_end)
        return wait_for(tls, GB_TLS_WANTS_READ);
    if (r < 0) {
        (void)gnutls_alert_send_appropriate(tls->session, r);
        return GB_TLS_FAILED;
    }
    tls->shaken = true;
    if (!tls->certificate && gb_tls_certificate_read(tls->session, &tls->certificate, &why) < 0)
        return refuse(tls, why);
    return wait_for(tls, GB_TLS_DONE);
}

void gb_tls_end(struct gb_tls *tls) {
    if (tls->shaken && tls->broken == 0 && tls->out_len == 0 && tls->queue_len == 0)
        (void)gnutls_bye(tls->session, GNUTLS_SHUT_WR);
}

const struct gb_http_certificate *gb_tls_certificate_ref(struct gb_tls *tls) {
    return tls ? gb_tls_certificate_take(tls->certificate) : NULL;
}

bool gb_tls_is_verified(const struct gb_tls *tls, const struct gb_tls_context *context) {
    return !tls->certificate || context == (tls->verifier ? tls->verifier : tls->context);
}

void gb_tls_verify(struct gb_tls *tls, struct gb_tls_context *context) {
    if (gb_tls_is_verified(tls, context))
        return;
    gb_tls_certificate_again(tls->session, context->credentials, tls->certificate);
    gb_tls_context_unref(tls->verifier);
    tls->verifier = gb_tls_context_ref(context);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

const struct gb_http_names *gb_tls_names(const struct gb_tls *tls) {
    return tls ? gb_tls_context_names(tls->context) : NULL;
}

void gb_tls_woken(struct gb_tls *tls) {
    tls->dry = false;
}

static ssize_t break_off(struct gb_tls *tls, int code) {
    tls->broken = code;
    errno = code;
    return -1;
}

/* What is no data. The end may come without a word, as that of a plain socket does. A client that wants to
 * renegotiate is not heard: its connection ends. */
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
    default:
        (void)gnutls_alert_send_appropriate(tls->session, (int)r);
        return break_off(tls, ECONNRESET);
    }
}

static ssize_t read_records(struct gb_tls *tls, char *room, size_t n) {
    size_t left = READ_RECORDS + n / 8192;
    size_t got = 0;
    ssize_t r;

    if (tls->ended)
        return 0;
    if (tls->broken != 0) {
        errno = tls->broken;
        return -1;
    }
    while (got < n && left > 0) {
        r = gnutls_record_recv(tls->session, room + got, n - got);
        if (is_silent(tls, r)) {
            if (++tls->silent <= SILENT_MAX)
                continue;
            r = GNUTLS_E_TOO_MANY_EMPTY_PACKETS;
        }
        if (r <= 0) {
            r = no_data(tls, r == GNUTLS_E_AGAIN && tls->at_end ? 0 : r);
            return got > 0 ? (ssize_t)got : r;
        }
        tls->silent = 0;
        got += (size_t)r;
        left--;
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
    return tls->plain_len > 0 || tls->ended || tls->broken != 0 || gnutls_record_check_pending(tls->session) > 0;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* One record, or as much of it as the client permits. Returns the bytes that are in it, -1 with EAGAIN if another one
 * must leave first, or -1. A part of it may wait in `out`. */
static ssize_t put_record(struct gb_tls *tls, const char *bytes, size_t n) {
    ssize_t r;

    if (flush_out(tls) < 0)
        return errno == EAGAIN ? -1 : break_off(tls, EPIPE);
    do
        r = gnutls_record_send(tls->session, bytes, n);
    while (r == GNUTLS_E_INTERRUPTED);
    return r < 0 ? break_off(tls, EPIPE) : r;
}

bool gb_tls_is_sending(const struct gb_tls *tls) {
    return tls->held > 0;
}

void gb_tls_queue(struct gb_tls *tls, const void *bytes, size_t n) {
    size_t left = tls->held < n ? tls->held : n;
    char *bigger;

    tls->held -= left;
    n -= left;
    if (n == 0)
        return;
    bigger = malloc(tls->queue_len + n);
    if (!bigger) {
        tls->broken = ENOMEM;
        return;
    }
    if (tls->queue_len > 0)
        memcpy(bigger, tls->queue + tls->queue_at, tls->queue_len);
    memcpy(bigger + tls->queue_len, (const char *)bytes + left, n);
    free(tls->queue);
    tls->queue = bigger;
    tls->queue_at = 0;
    tls->queue_len += n;
}

static void took_queue(struct gb_tls *tls, size_t n) {
    tls->queue_at += n;
    tls->queue_len -= n;
    if (tls->queue_len > 0)
        return;
    free(tls->queue);
    tls->queue = NULL;
}

/* Sends the queue but for its last bytes, of which up to `rest` stay. Returns 0, or -1 as gb_tls_send. */
static int send_queue(struct gb_tls *tls, size_t rest, bool more) {
    while (tls->queue_len > rest) {
        size_t size = tls->queue_len < RECORD_BYTES ? tls->queue_len : RECORD_BYTES;
        ssize_t r;

        tls->more = more || tls->queue_len > size;
        r = put_record(tls, tls->queue + tls->queue_at, size);
        if (r < 0)
            return -1;
        took_queue(tls, (size_t)r);
    }
    return 0;
}

int gb_tls_flush(struct gb_tls *tls) {
    if (tls->broken != 0) {
        errno = tls->broken;
        return -1;
    }
    return send_queue(tls, 0, false) < 0 ? -1 : flush_out(tls);
}

/* What is queued, and as much as fits beside it of the bytes, of which it returns how many are in the record. */
static ssize_t put_joined(struct gb_tls *tls, const char *bytes, size_t n) {
    char record[RECORD_BYTES];
    size_t before = tls->queue_len;
    size_t size = n < RECORD_BYTES - before ? n : RECORD_BYTES - before;
    ssize_t r;

    if (before == 0)
        return put_record(tls, bytes, size);
    memcpy(record, tls->queue + tls->queue_at, before);
    memcpy(record + before, bytes, size);
    r = put_record(tls, record, before + size);
    if (r < 0)
        return -1;
    before = before < (size_t)r ? before : (size_t)r;
    took_queue(tls, before);
    return r - (ssize_t)before;
}

static ssize_t send_records(struct gb_tls *tls, const char *at, size_t n, size_t sent, bool more) {
    while (sent < n) {
        ssize_t r;

        tls->more = more || n - sent > RECORD_BYTES;
        r = put_joined(tls, at + sent, n - sent);
        if (r < 0)
            return sent > 0 && errno == EAGAIN ? (ssize_t)sent : -1;
        if (tls->out_len > 0) {
            tls->held = (size_t)r;
            errno = EAGAIN;
            return sent > 0 ? (ssize_t)sent : -1;
        }
        sent += (size_t)r;
    }
    return (ssize_t)sent;
}

ssize_t gb_tls_send(struct gb_tls *tls, const void *bytes, size_t n, bool more) {
    size_t sent = tls->held;

    if (more && sent == 0 && tls->broken == 0 && tls->queue_len + n <= JOIN_BYTES) {
        gb_tls_queue(tls, bytes, n);
        sent = n;
    }
    if (tls->broken != 0) {
        errno = tls->broken;
        return -1;
    }
    if (tls->held > 0) {
        if (flush_out(tls) < 0)
            return errno == EAGAIN ? -1 : break_off(tls, EPIPE);
        tls->held = 0;
    } else if (sent == 0 && send_queue(tls, JOIN_BYTES, true) < 0) {
        return -1;
    }
    return send_records(tls, bytes, n, sent, more);
}
