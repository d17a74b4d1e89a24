/* The load generator. Each mode prints one JSON object on stdout. */
#ifndef GB_BENCH_LOAD_H
#define GB_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

struct load_options {
    int port;
    const char *socket;   /* path of a UNIX socket instead; NULL: none */
    const char *path;     /* one %d is replaced by the number of the connection */
    const char *host;     /* value of the Host field */
    unsigned connections; /* concurrent connections */
    uint64_t bytes;       /* of one body */
    const char *body;     /* put mode: a file with the body; NULL: generated */
    const char *header;   /* put mode: one more line of the head, or "" */
    uint64_t piece_bytes; /* of one send or recv */
    unsigned requests;    /* requests of each connection; 0: until the time is over */
    double seconds;
    bool expect; /* send Expect: 100-continue and wait for the answer before the body */
    bool fresh;  /* a connection for every request, as curl makes */
    bool resume; /* which resumes the TLS session of the one before */
    bool over_tls;
    const char *tls_priority;
    struct bench_tls_side *tls; /* made of these two; NULL: plain */
    const char *method;         /* post mode */
    const char *json;           /* its body */
    bool etag;                  /* If-None-Match with the first reply's tag; 304 is expected */
    int status;                 /* poll mode: what is expected without that tag */
    unsigned idle;              /* idle connections to hold */
    pid_t pid;                  /* the process whose memory is measured */
};

/* Whole bodies, a thread for each connection. */
void load_put(const struct load_options *options);
void load_get(const struct load_options *options);
void load_redis(const struct load_options *options);

/* Small requests from one thread with epoll, one in flight on each connection. */
void load_poll(const struct load_options *options);
void load_post(const struct load_options *options);
void load_puts(const struct load_options *options); /* small bodies, by the epoll engine */
void load_pairs(const struct load_options *options);
void load_idle(const struct load_options *options);

/* Connects; over TLS it also shakes hands. ticket: of an earlier connection, NULL: none. False: errno says why. */
bool load_connect(const struct load_options *options, const gnutls_datum_t *ticket, struct bench_wire *ret);

/* Writes options->path with the number in place of %d. */
void load_path(const struct load_options *options, unsigned number, char *ret_text, size_t size);

#endif
