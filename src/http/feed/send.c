/* Which frames are a listener's, and how far its socket takes them. */
#include "http/feed/send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "http/tls/tls.h"

/* For a listener that catches up, before others get their turn: of a long log it may hear nothing. */
#define TURN_BYTES (256u << 10)
#define TURN_PIECES 8

static bool hears(const struct gb_feed_listener *l, const struct gb_http_frame *f) {
    return f->id > l->begin && (f->topics & l->topics) &&
           (!l->owner[0] || !f->owner[0] || strcmp(f->owner, l->owner) == 0) &&
           (l->prefix_len == 0 || !f->about[0] || strncmp(f->about, l->prefix, l->prefix_len) == 0);
}

/* --- what comes next ---------------------------------------------------------------------------------------------- */

static void piece_done(struct gb_feed_listener *l) {
    free(l->piece);
    l->piece = NULL;
    l->piece_at = l->piece_count = 0;
}

/* Reads the next piece of frames further back than the ring. False: memory is exhausted. */
static bool piece_get(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    const struct gb_http_feed_config *c = &feed->config;
    uint64_t through = l->after;

    if (!l->piece)
        l->piece = malloc(GB_FEED_PIECE * sizeof(*l->piece));
    if (!l->piece)
        return false;
    l->piece_at = 0;
    l->piece_count = c->hooks->read(c->app, l->after, l->topics, l->owner, l->piece, GB_FEED_PIECE, &through);
    /* There is nothing, though the ring begins further up: the frames between are lost. */
    l->after = l->piece_count == 0 && through == l->after ? feed->ring_after : through;
    return true;
}

/* Finds the place in the ring of a listener that has caught up. It may have more frames than the ring, which is filled
 * later. */
static void join_ring(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    piece_done(l);
    l->begin = l->after;
    l->behind = false;
    l->seq = feed->ring_first;
    while (l->seq < feed->ring_end && feed->ring[l->seq % GB_FEED_RING]->id <= l->after)
        l->seq++;
}

/* Puts the listener's next frames into l->hold, each with a reference. If it is behind and gets none, this turn's
 * pieces had nothing for it. False: memory is exhausted, or its next frame is not in the ring any more. */
static bool gather(struct gb_http_feed *feed, struct gb_feed_listener *l, unsigned *pieces) {
    if (!l->behind && l->seq < feed->ring_first) {
        gb_feed_listener_farewell(feed, l);
        return false;
    }
    while (l->behind && l->held < GB_FEED_HELD) {
        if (l->piece_at < l->piece_count) {
            l->hold[l->held] = l->piece[l->piece_at++];
            if (hears(l, l->hold[l->held]))
                l->held++;
            else
                gb_http_frame_unref(l->hold[l->held]);
        } else if (l->after >= feed->ring_after) {
            join_ring(feed, l);
        } else if (l->held > 0 || (*pieces)++ >= TURN_PIECES) {
            return true;
        } else if (!piece_get(feed, l)) {
            return false;
        }
    }
    for (; l->seq < feed->ring_end && l->held < GB_FEED_HELD; l->seq++) {
        if (hears(l, feed->ring[l->seq % GB_FEED_RING]))
            l->hold[l->held++] = gb_http_frame_ref(feed->ring[l->seq % GB_FEED_RING]);
    }
    return true;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* wanted: an event is to come when the socket takes more. False: the connection cannot be used any more. */
static bool await_room(struct gb_http_feed *feed, struct gb_feed_listener *l, bool wanted) {
    struct epoll_event ev = {.events = wanted ? EPOLLRDHUP | EPOLLOUT : EPOLLRDHUP, .data.ptr = l};

    if (wanted == l->blocked)
        return true;
    l->blocked = wanted;
    return epoll_ctl(feed->epoll_fd, EPOLL_CTL_MOD, l->fd, &ev) == 0;
}

/* A frame at a time: each is a record. */
static ssize_t send_secure(struct gb_feed_listener *l) {
    const struct gb_http_frame *first = l->hold[0];

    return gb_tls_send(l->tls, first->text + l->sent, first->len - l->sent, false);
}

static ssize_t send_held(struct gb_feed_listener *l) {
    struct iovec iov[GB_FEED_HELD];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = l->held};
    unsigned i;

    if (l->tls)
        return send_secure(l);
    for (i = 0; i < l->held; i++) {
        size_t skip = i == 0 ? l->sent : 0;

        iov[i] = (struct iovec){.iov_base = l->hold[i]->text + skip, .iov_len = l->hold[i]->len - skip};
    }
    return sendmsg(l->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void consume(struct gb_feed_listener *l, size_t n) {
    unsigned gone = 0;

    l->sent += n;
    while (gone < l->held && l->sent >= l->hold[gone]->len) {
        l->sent -= l->hold[gone]->len;
        gb_http_frame_unref(l->hold[gone++]);
    }
    l->held -= gone;
    memmove(l->hold, l->hold + gone, l->held * sizeof(*l->hold));
}

bool gb_feed_listener_run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns) {
    unsigned pieces = 0;
    size_t turn = 0;

    while (turn < TURN_BYTES) {
        ssize_t n;

        if (l->held == 0 && !gather(feed, l, &pieces))
            return false;
        if (l->held == 0 && !l->behind)
            return await_room(feed, l, false);
        if (l->held == 0) {
            l->blocked_ns = now_ns; /* its socket does not make it wait */
            break;
        }
        n = send_held(l);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        consume(l, (size_t)n);
        l->sent_ns = now_ns;
        turn += (size_t)n;
    }
    if (turn > 0 || !l->blocked)
        l->blocked_ns = now_ns;
    return await_room(feed, l, true);
}

bool gb_feed_listener_level(const struct gb_http_feed *feed, const struct gb_feed_listener *l) {
    return l->held == 0 && !l->behind && l->seq == feed->ring_end;
}

void gb_feed_listener_farewell(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    if (l->held > 0 && (l->sent > 0 || (l->tls && gb_tls_is_sending(l->tls))))
        return;
    (void)!gb_wire_send(l->fd, l->tls, feed->farewell->text, feed->farewell->len, false);
}
