/* Small HTTP requests to others, many at a time, on one thread: libcurl's multi interface. */
#ifndef GB_FLEET_HTTP_CLIENT_H
#define GB_FLEET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Nanoseconds of a clock that goes on while the machine sleeps, as leases do. */
uint64_t gb_boot_ns(void);
uint64_t gb_boot_ms(void);

struct gb_http_client;

/* The files are copied; NULL or "": none. */
struct gb_http_client_files {
    const char *ca;
    const char *cert;
    const char *key;
};
struct gb_http_client *gb_http_client_new(const struct gb_http_client_files *files, struct gb_error *err);
/* Cancels what is open. NULL is accepted. */
void gb_http_client_free(struct gb_http_client *client);

/* How often the last connection by which asks that are `watched` were answered has ended: the other side may be another
 * process since. Idle connections count, and one that ends ends a wait. */
uint64_t gb_http_client_breaks(struct gb_http_client *client);

/* One request, embedded by its owner, who may not move it while it is open. */
struct gb_http_ask {
    const char *method;
    const char *url;  /* copied */
    const char *body; /* JSON; NULL: none. Borrowed until the end */
    size_t body_bytes;
    const char *const *headers; /* besides Content-Type; ends with NULL. NULL: none */
    bool once;    /* libcurl may not send it again by itself, which it does when an old connection is found closed */
    bool watched; /* gb_http_client_breaks is of its connections */
    unsigned connect_ms;
    unsigned total_ms;
    size_t answer_max;
    /* Once, on the thread of gb_http_client_run, with what follows set. It may start and cancel others. */
    void (*done)(struct gb_http_ask *ask);

    int status;    /* 0: no answer */
    bool sent;     /* something of the request may have arrived */
    char why[160]; /* unless there is a status */
    bool too_long; /* the answer had more than answer_max bytes */
    char *answer;  /* NUL-terminated; freed by the owner */
    size_t bytes;
    int64_t date_s;   /* of the answer, seconds since the epoch; 0: none */
    bool date_told;   /* by a hub, of the directory */
    unsigned doubt_s; /* a hub is in doubt of the directory for so long; 0: it is not */
    int64_t wall_us;  /* when the answer had arrived */

    /* The client's. */
    void *easy;
    void *header_list;
    struct gb_http_client *client;
    size_t room;
};

/* Returns 0, or -1 with SATURATED: done does not run. */
int gb_http_client_start(struct gb_http_client *client, struct gb_http_ask *ask, struct gb_error *err);
/* done does not run. One that is not open is accepted. */
void gb_http_client_cancel(struct gb_http_ask *ask);
/* Waits at most that long for something to happen, and lets it. */
void gb_http_client_run(struct gb_http_client *client, uint64_t timeout_ms);
/* Ends a wait. [any thread] */
void gb_http_client_wake(struct gb_http_client *client);

#endif
