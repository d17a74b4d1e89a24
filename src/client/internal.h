/* What the parts of libgpubuf share: the settings of a client, requests and replies as values. client.h makes requests,
 * http.h performs them. */
#ifndef GBC_INTERNAL_H
#define GBC_INTERNAL_H

#include <stdatomic.h>
#include <time.h>

#include <gpubuf/gpubuf.h>

#include "client/error.h"
#include "client/text.h"

struct gbc_epochs;

/* What a client was opened with; read only from then on, by the threads of a transfer too. */
struct gbc_settings {
    char *url;
    char *base;       /* what targets are put behind: "http://localhost" over a UNIX socket */
    char *socket;     /* for requests; NULL over TCP */
    char *map_socket; /* for mappings; NULL where none is known */
    char *cacert;     /* a file or a folder; NULL: the system's authorities */
    char *ca_text;    /* of the certificates of a folder; NULL: it is a file */
    size_t ca_bytes;
    char *cert;  /* of this client; NULL: none */
    char *key;   /* of cert */
    char *token; /* NULL: none */
    char *agent;
    bool local; /* no proxy is asked */
    bool tls;
    unsigned retries;
    uint64_t connect_ms;
    uint64_t answer_ms;
    uint64_t stall_ms;
    void (*trace)(void *arg, const char *line);
    void *trace_arg;
    atomic_int interrupted; /* written from signal handlers */
    atomic_int spoken;      /* HTTP has been answered: the scheme of the URL is right */
    atomic_int let_in;      /* the token has been accepted */
    struct gbc_epochs *epochs;
};

struct gbc_conn;
struct gbc_link;

struct gpubuf_client {
    struct gbc_settings set;
    struct gbc_conn *conn;
    struct gpubuf_answer answer;
    struct gbc_link *link; /* what its mappings hold; NULL before the first */
};

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* Bytes that are sent. */
struct gbc_up {
    int64_t (*read)(void *arg, void *data, size_t size, struct gpubuf_error *err); /* 0 at the end, -1 with err */
    int (*rewind)(void *arg); /* back to the first byte: 0, or -1 where that cannot be */
    void *arg;
    uint64_t bytes; /* or GPUBUF_UNKNOWN */
    bool again;     /* rewind() succeeds at any time */
};

struct gbc_reply;

/* Bytes that come with a status of 2xx, in place of gbc_reply.body. */
struct gbc_down {
    int (*begin)(void *arg, const struct gbc_reply *reply, struct gpubuf_error *err); /* the header is whole */
    int (*write)(void *arg, const void *data, size_t bytes, struct gpubuf_error *err);
    void *arg;
};

struct gbc_request {
    const char *method;
    struct gbc_text target;
    struct gbc_text headers; /* "Name: value" with a NUL after each */
    struct gbc_text json;    /* a body, where it has bytes */
    const void *body;        /* another; may be NULL */
    size_t body_bytes;
    const char *body_type; /* of body and up; NULL: not said */
    const struct gbc_up *up;
    const struct gbc_down *down;
    int (*tick)(void *arg); /* some ten times a second; anything but 0 interrupts */
    void *tick_arg;
    uint32_t wait_s;
    uint64_t quiet_ms;                         /* an answer that has begun may rest that long, beside a stall */
    bool conditional;                          /* once done, a repetition would be refused */
    bool keyed;                                /* may be repeated because it has an Idempotency-Key */
    bool once;                                 /* never repeated by gbc_perform */
    bool even_so;                              /* though it was interrupted: tidies up after that */
    bool mute;                                 /* a thread of a transfer: does not trace */
    int (*again)(struct gbc_request *request); /* before a repetition, may change it: 0, or -1 to leave it */
    void *again_arg;
    struct gpubuf_error wrong; /* of its making: reported by gbc_perform */
};

/* What came with the last status line. */
struct gbc_reply {
    int status;
    struct gbc_text body;
    struct gbc_text type;
    struct gbc_text location;
    char etag[GPUBUF_ETAG_SIZE];
    char dtype[GPUBUF_WORD_SIZE];
    char shape[320];
    char timing[256];
    struct gpubuf_opt generation;
    struct gpubuf_opt crc32c;
    struct gpubuf_opt length; /* Content-Length */
    struct gpubuf_opt whole;  /* of Content-Range */
    struct gpubuf_opt range_first;
    struct gpubuf_opt upload_offset;
    struct gpubuf_opt epoch; /* of a session that is registered in a fleet */
    bool upload_complete;
    bool rate_limited; /* RateLimit names a rate */
    int retry_after_s;
};

static inline uint64_t gbc_now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
