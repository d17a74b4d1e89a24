/* Bytes a second of one client: its connections pause, and all others continue.
 *
 * A connection that may move nothing is armed for nothing, and checked again with the loop's tick. What is there then
 * is shared among the client's connections that wait for it. */
#ifndef GB_HTTP_TRANSFER_PACE_H
#define GB_HTTP_TRANSFER_PACE_H

#include "http/transfer/members.h"

size_t gb_pace_bounded(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n);
void gb_pace_paid(struct gb_http_transfer *t, size_t n);

/* How many of n bytes may be moved now. 0: t waits for the tick. A refusal never waits. */
static inline size_t gb_pace(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n) {
    return t->ex->client && t->ex->err.code == GB_OK ? gb_pace_bounded(loop, t, n) : n;
}
/* That many were moved. */
static inline void gb_pace_moved(struct gb_http_transfer *t, size_t n) {
    if (t->ex->client)
        gb_pace_paid(t, n);
}

/* Before the tick checks the time: that which t was paused does not count against the client. */
void gb_pace_excuse(struct gb_http_transfer *t, uint64_t now_ns);
/* It continues, or ends. */
void gb_pace_end(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

#endif
