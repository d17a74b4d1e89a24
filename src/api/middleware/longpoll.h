/* Long polls: a GET with "Prefer: wait=N" whose reply would be a 304 waits for a change.
 *
 * One thread compares entity tags, some five times a second and only after a change was acknowledged, and wakes the
 * requests whose tag has changed. Waiting requests have left libmicrohttpd (request->park), so that thousands cost
 * no loop anything. */
#ifndef GB_API_MIDDLEWARE_LONGPOLL_H
#define GB_API_MIDDLEWARE_LONGPOLL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

struct gb_core;

/* Over UNIX sockets, waiting requests stay with libmicrohttpd, which walks all of them whenever one ends. One more than
 * this gets its 304 at once. */
#define GB_POLLS_LOCAL_MAX 64

struct gb_polls;

/* core is borrowed. Returns NULL when memory or threads are exhausted. */
struct gb_polls *gb_polls_new(struct gb_core *core);
void gb_polls_free(struct gb_polls *polls); /* NULL is accepted */
/* Replies 304 to all waiting requests, and to later ones at once. [any thread, never blocks] */
void gb_polls_end(struct gb_polls *polls);
/* Checks the tokens of all waiting requests again. [any thread, never blocks] */
void gb_polls_recheck(struct gb_polls *polls);

/* Tells whether the resource still has that tag. [now] */
typedef bool gb_poll_same(struct gb_core *core, const struct gb_http_request *request, const char *tag);

/* Waits for a change, when the response is a complete 304. handler: runs again from its start. same: NULL when every
 * change counts. sequence: of the core, read before the record was. Returns REPLY when the client did not ask to wait
 * or the time is over, else WAIT. */
enum gb_step gb_poll_unchanged(struct gb_polls *polls, struct gb_http_request *request,
                               struct gb_http_response *response, gb_http_handler *handler, gb_poll_same *same,
                               const char *tag, uint64_t sequence);

#endif
