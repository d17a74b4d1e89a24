/* Sockets on their way to a loop, and which loop they go to. */
#ifndef GB_HTTP_MHD_HANDOFF_QUEUE_H
#define GB_HTTP_MHD_HANDOFF_QUEUE_H

#include <pthread.h>

#include "http/exchange/handoff.h"

struct gb_loop;

struct gb_handoff_queue {
    pthread_mutex_t lock;
    struct gb_handoff *list;
    size_t count;
    size_t size;
};

/* Takes one. False: none. */
bool gb_handoff_take(struct gb_handoff_queue *handoffs, struct gb_handoff *ret);

/* [any thread] Gives a connected socket to a loop, which owns it from then on; it is closed if memory is exhausted. */
void gb_loop_give(struct gb_loop *loop, const struct gb_handoff *handoff);

/* [any thread] The least loaded loop; own (may be NULL) if none is less loaded. */
struct gb_loop *gb_loop_pick(struct gb_http_server *server, struct gb_loop *own);

/* Whether a connection whose requests have that many bytes had better go to another loop. */
bool gb_loop_crowded(struct gb_loop *loop, uint64_t bytes);
/* [the loop's thread, at each tick] Checks how busy the loop is. */
void gb_loop_weigh(struct gb_loop *loop, uint64_t now_ns);

/* Connections, shared by all loops. Each loop may have its share of them more than the least busy one before newcomers
 * go to the next. A few threads that are always at work answer more than many that are woken for each request. */
#define GB_LOOP_TOGETHER 128

/* [any thread] The first loop that has no more than slack connections more than the least loaded; a body under way
 * counts as more. */
struct gb_loop *gb_loop_fill(struct gb_http_server *server, unsigned slack);

#endif
