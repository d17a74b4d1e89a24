/* What the parts of libgpubuf share. */
#ifndef GBC_CLIENT_H
#define GBC_CLIENT_H

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

void gbc_reply_done(struct gbc_reply *reply);
/* A line of a header, with its end of line; *ret_end at the line that ends the header of a final answer. */
void gbc_reply_line(struct gbc_reply *reply, const char *line, size_t bytes, bool *ret_end);

/* method stays the caller's. path has a % for each name that follows; they are escaped, and none may be NULL or
 * empty. */
void gbc_request_init(struct gbc_request *request, const char *method, const char *path, ...);
void gbc_request_done(struct gbc_request *request);
/* A query parameter; value NULL: none. */
void gbc_query(struct gbc_request *request, const char *key, const char *value);
void gbc_query_u64(struct gbc_request *request, const char *key, uint64_t value);
void gbc_query_true(struct gbc_request *request, const char *key, bool value);
void gbc_header(struct gbc_request *request, const char *name, const char *value); /* NULL: none */
void gbc_how(struct gbc_request *request, const struct gpubuf_how *how);
/* Takes body over (NULL: no memory); it becomes the request's JSON. */
void gbc_json(struct gbc_request *request, json_t *body);
/* The JSON as text, which the caller frees. NULL, with err: body is NULL, memory is lacking, or a text is not UTF-8. */
char *gbc_json_text(const json_t *body, struct gpubuf_error *err);

/* --- connections -------------------------------------------------------------------------------------------------- */

struct gbc_conn *gbc_conn_new(struct gbc_settings *set, struct gpubuf_error *err);
void gbc_conn_free(struct gbc_conn *conn);

/* Asks, again where that may be, and waits. 0 with a status below 400, or -1 with err. */
int gbc_perform(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err);
/* Waits for ms, as part of the request of the last gbc_perform: 0, or -1 with err when it was interrupted. */
int gbc_pause(struct gbc_conn *conn, uint64_t ms, struct gpubuf_error *err);
double gbc_took_ms(const struct gbc_conn *conn); /* the last attempt; negative: it is not known */
/* Of the last gbc_perform, until the next. */
struct gbc_reply *gbc_reply_of(struct gbc_conn *conn);

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Performs on the client's own connection, fills its answer, ends the request. Then by status: 304 is GPUBUF_UNCHANGED;
 * 202 writes how->ret_operation; else the JSON goes to record(ret), when ret is not NULL. how, record may be NULL. */
int gbc_call(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how, gbc_record_fn *record,
             void *ret, struct gpubuf_error *err);

/* Its first half: performs and fills the answer, the request stays. */
int gbc_ask(gpubuf_client *client, struct gbc_request *request, struct gpubuf_error *err);

/* 0, or -1 with BAD_ANSWER: the JSON of text as a record. */
int gbc_parse(const struct gbc_text *text, gbc_record_fn *record, void *ret, struct gpubuf_error *err);

/* Adds to a JSON object; value NULL, and what is not set, is left out. Lack of memory goes to wrong, so that no request
 * leaves without what the caller said. */
void gbc_put_text(struct gpubuf_error *wrong, json_t *object, const char *key, const char *value);
void gbc_put_u64(struct gpubuf_error *wrong, json_t *object, const char *key, uint64_t value);
/* Only where it is. */
void gbc_put_true(struct gpubuf_error *wrong, json_t *object, const char *key, bool value);
/* An index as a number. */
void gbc_put_device(struct gpubuf_error *wrong, json_t *object, const char *key, const char *device);
/* "2,3" as an array, or BAD_ARGUMENT in wrong. */
void gbc_put_shape(struct gpubuf_error *wrong, json_t *object, const char *key, const char *shape);
/* Takes value over; NULL: no memory. */
void gbc_put(struct gpubuf_error *wrong, json_t *object, const char *key, json_t *value);
void gbc_add_text(struct gpubuf_error *wrong, json_t *array, const char *value);

static inline uint64_t gbc_now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#define GBC_REFUSAL_SIZE 384

/* After EACCES or EPERM: which mode, user and group stand in the way, and who we are. Any thread. */
void gbc_socket_refusal(const char *path, char *ret, size_t size);

/* Whether the host of a URL is this machine, whatever its name service says. */
bool gbc_is_loopback(const char *url);

#endif
