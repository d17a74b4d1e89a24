/* Waiting for a change: a GET with "Prefer: wait=N" whose answer would be a 304.
 *
 * One thread looks at those that wait, some five times a second and only when something was acknowledged since, and wakes those
 * whose entity tag is another now. They have left libmicrohttpd (request->park), so that thousands cost nobody anything. */
#ifndef GB_API_MIDDLEWARE_LONGPOLL_H
#define GB_API_MIDDLEWARE_LONGPOLL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "http/http.h"

struct gb_core;

/* Over UNIX sockets they stay with libmicrohttpd, which walks all of them whenever one ends: one more gets its 304 at once. */
#define GB_POLLS_LOCAL_MAX 64

TAILQ_HEAD(gb_poll_list, gb_poll);

struct gb_polls {
    struct gb_core *core;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    struct gb_poll_list list;
    unsigned count;
    unsigned local;
    bool ending; /* nobody waits any more */
    bool stopping;
};

int gb_polls_init(struct gb_polls *polls, struct gb_core *core);
void gb_polls_done(struct gb_polls *polls);
/* [any thread, never blocks] All get their 304 now, and so does who comes. */
void gb_polls_end(struct gb_polls *polls);
/* [any thread, never blocks] Tokens have changed: who may not ask any more is told so now. */
void gb_polls_recheck(struct gb_polls *polls);

/* Whether the resource still has that tag. [now] */
typedef bool gb_poll_same(struct gb_core *core, const struct gb_http_request *request, const char *tag);

/* The response stands and says 304. REPLY where nobody asked to wait, or it is time; else WAIT: handler runs again, from its
 * start. sequence: of the core, read before the record was; same: NULL: every change counts. */
enum gb_step gb_poll_unchanged(struct gb_polls *polls, struct gb_http_request *request,
                               struct gb_http_response *response, gb_http_handler *handler, gb_poll_same *same,
                               const char *tag, uint64_t sequence);

#endif
