/* What the log and the access log say of requests. A client can cause any number of refusals: those of one client
 * and code beyond a few in a minute, and those of all beyond many, are counted and reported together. The server
 * calls this for each request that has ended, on any thread; the main loop once in a while. */
#ifndef GB_DAEMON_REQUEST_LOG_H
#define GB_DAEMON_REQUEST_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/options.h"
#include "http/http.h"

struct gb_request_log;

/* Whether that value of --access-log names a file. */
bool gb_request_log_is_file(const char *name);

/* Opens the file of --access-log, if it is given, and the queues. log is copied. Before the server starts, after the
 * cage; at most one of a process. Returns 0, or -1 with INTERNAL. */
int gb_request_log_open(const struct gb_options *options, const struct gb_log *log, struct gb_request_log **ret,
                        struct gb_error *err);
/* After the server has stopped. Writes what waits. NULL is accepted. */
void gb_request_log_close(struct gb_request_log *requests);

/* The hook `ended` of gb_http_server_config, whose app is the api: gb_api_ended is called as well. [never blocks] */
void gb_request_log_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end);

/* Logs lines that were lost, once a minute at most. */
void gb_request_log_check(struct gb_request_log *requests);
/* Opens the file again, which logrotate has renamed. */
void gb_request_log_reopen(struct gb_request_log *requests);

/* --- refusals that have a line of their own ----------------------------------------------------------------------- */

#define GB_REFUSAL_LINES_NS (60 * GB_NS_PER_S)
#define GB_REFUSAL_LINES_EACH 10
#define GB_REFUSAL_LINES_ALL 300
/* Pairs of client and code that are counted at a time. */
#define GB_REFUSAL_LINES_KINDS 64

struct gb_refusal_kind {
    char client[GB_HTTP_ADDRESS_SIZE]; /* "": all others */
    enum gb_code code;                 /* GB_OK: any */
    uint64_t since_ns;
    uint64_t count;    /* since then */
    uint64_t left_out; /* of them */
};

struct gb_refusal_lines {
    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_refusal_kind kinds[GB_REFUSAL_LINES_KINDS];
    unsigned used;
    struct gb_refusal_kind others;
    uint64_t since_ns; /* of the minute that `written` counts */
    uint64_t written;
};

void gb_refusal_lines_init(struct gb_refusal_lines *lines);
void gb_refusal_lines_done(struct gb_refusal_lines *lines);

/* [any thread] True: it has a line. */
bool gb_refusal_lines_take(struct gb_refusal_lines *lines, const char *client, enum gb_code code, uint64_t now_ns);

/* [one thread] Takes a minute that has ended and in which lines were left out; with `all` also one that has not ended.
 * The caller reports *ret, and calls again until this is false: no such minute is left. */
bool gb_refusal_lines_next(struct gb_refusal_lines *lines, bool all, uint64_t now_ns, struct gb_refusal_kind *ret);

#endif
