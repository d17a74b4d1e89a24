/* A server of the http layer alone, with a small application behind it, and raw clients against it. */
#ifndef GB_HTTP_FIXTURE_H
#define GB_HTTP_FIXTURE_H

#include <stdatomic.h>
#include <stddef.h>

#include "http/http.h"

#define GB_FIXTURE_MEMORY (32u << 20)

/* Routes: PUT and GET /b/{name} (one shared block of memory), POST /json (answers the body's length), GET /wait (woken
 * by another thread), GET /wait?never, GET /wait?held (woken by none), GET /wait?held=parked, GET /canned, PUT /slow
 * (room appears only through wakes), PUT /drop[?slow] (keeps no byte; for uploads side by side), PUT /drop?full (never
 * has room), PUT /refused. Requests for "held" and "full" wait for ever, if
 * may_hold is set. */
struct gb_http_fixture {
    struct gb_http_server *server;
    bool may_hold; /* set by a test behind the start */
    int port;
    char *memory;
    atomic_size_t stored;      /* bytes of the last whole upload */
    atomic_uint sinks_open;    /* sinks not freed */
    atomic_uint rooms_awaited; /* that a full sink was asked for */
    atomic_uint sources_open;  /* sources not freed */
    atomic_uint ended;         /* requests for which the server called `ended` */
    struct gb_http_canned *canned;
};

/* tweak (may be NULL) changes the configuration before the start. */
void gb_http_fixture_start(struct gb_http_fixture *f, void (*tweak)(struct gb_http_server_config *config));
void gb_http_fixture_stop(struct gb_http_fixture *f);

/* A connected, blocking socket with a receive time-out of 20 s. */
int gb_client(const struct gb_http_fixture *f);
void gb_client_send(int fd, const char *data, size_t n);
void gb_client_text(int fd, const char *text);

/* Reads one reply. Returns its status, or 0 if the connection ended before a whole head. body gets up to size bytes;
 * *ret_len (may be NULL) the body's length by Content-Length; *ret_close whether the head says Connection: close. */
int gb_client_reply(int fd, char *body, size_t size, size_t *ret_len, bool *ret_close);

/* Whether the server has ended the connection. */
bool gb_client_at_end(int fd);

/* Wakes it by another thread. */
void gb_http_wake_later(struct gb_http_request *request);

#endif
