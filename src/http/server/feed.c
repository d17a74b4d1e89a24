/* The feed: listeners of server-sent events, each with a place in the shared log of frames. One thread sends to all of
 * them; a listener that does not read loses its connection, and no listener makes others wait. Loops give it
 * connections, and the application wakes it when there are new events. */
#include "http/server/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/http.h"
#include "http/server/state.h"
#include "http/tls/tls.h"

/* --- send --------------------------------------------------------------------------------------------------------- */

/* For a listener that catches up, before others get their turn: of a long log it may hear nothing. */
#define TURN_BYTES (256u << 10)
#define LISTENER_PIECES 8

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

/* Sends the farewell, if that does not break into another frame. */
static void feed_listener_farewell(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    if (l->held > 0 && (l->sent > 0 || (l->tls && gb_tls_is_sending(l->tls))))
        return;
    (void)!gb_wire_send(l->fd, l->tls, feed->farewell->text, feed->farewell->len, false);
}

/* Puts the listener's next frames into l->hold, each with a reference. If the listener is behind and gets no frame,
 * this turn's pieces had nothing for it. False: memory is exhausted, or its next frame is no longer in the ring. */
static bool gather(struct gb_http_feed *feed, struct gb_feed_listener *l, unsigned *pieces) {
    if (!l->behind && l->seq < feed->ring_first) {
        feed_listener_farewell(feed, l);
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
        } else if (l->held > 0 || (*pieces)++ >= LISTENER_PIECES) {
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

/* Sends the listener's frames as far as its socket takes them. False: the connection cannot be used any more. */
static bool feed_listener_run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns) {
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

/* Whether it has got all frames that there are. */
static bool feed_listener_level(const struct gb_http_feed *feed, const struct gb_feed_listener *l) {
    return l->held == 0 && !l->behind && l->seq == feed->ring_end;
}

/* --- feed --------------------------------------------------------------------------------------------------------- */

#define EVENTS 64
#define TURN_PIECES 16 /* of new frames, before others get their turn */
#define TICK_NS GB_NS_PER_S
#define DRAIN_NS (1000 * GB_NS_PER_MS) /* for listeners that do not take the last event at once */
#define DRAIN_TICK_MS 20

/* --- listeners ---------------------------------------------------------------------------------------------------- */

static void drop(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    if (l->prev)
        l->prev->next = l->next;
    else
        feed->listeners = l->next;
    if (l->next)
        l->next->prev = l->prev;
    /* A UNIX socket may have a duplicate: closing would not take it out of the set. */
    epoll_ctl(feed->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
    gb_feed_listener_free(l);
}

static void run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns) {
    bool over = !feed_listener_run(feed, l, now_ns);

    if (!over && feed->complete && feed_listener_level(feed, l))
        over = true;
    if (over)
        drop(feed, l);
}

/* --- the ring ----------------------------------------------------------------------------------------------------- */

static void ring_pop(struct gb_http_feed *feed) {
    struct gb_http_frame *f = feed->ring[feed->ring_first++ % GB_FEED_RING];

    feed->ring_bytes -= f->len;
    feed->ring_after = f->id;
    gb_http_frame_unref(f);
}

static void ring_put(struct gb_http_feed *feed, struct gb_http_frame *f) {
    while (feed->ring_first < feed->ring_end &&
           (feed->ring_end - feed->ring_first == GB_FEED_RING || feed->ring_bytes + f->len > GB_FEED_RING_BYTES))
        ring_pop(feed);
    feed->ring[feed->ring_end++ % GB_FEED_RING] = f;
    feed->ring_bytes += f->len;
}

/* Reads one piece of new frames into the ring. False: there are no more. */
static bool pull(struct gb_http_feed *feed) {
    const struct gb_http_feed_config *c = &feed->config;
    struct gb_http_frame *frames[GB_FEED_PIECE];
    uint64_t through = feed->ring_last;
    size_t n = c->hooks->read(c->app, feed->ring_last, UINT64_MAX, "", frames, GB_FEED_PIECE, &through);
    bool more = n > 0 || through > feed->ring_last;
    size_t i;

    for (i = 0; i < n; i++)
        ring_put(feed, frames[i]);
    feed->ring_last = through;
    return more;
}

/* There was no listener: events that happened meanwhile are not wanted here. */
static void ring_restart(struct gb_http_feed *feed) {
    while (feed->ring_first < feed->ring_end)
        ring_pop(feed);
    feed->ring_after = feed->ring_last = feed->config.hooks->newest(feed->config.app);
}

static void tell_all(struct gb_http_feed *feed, uint64_t now_ns) {
    struct gb_feed_listener *l;
    struct gb_feed_listener *next;

    for (l = feed->listeners; l; l = next) {
        next = l->next;
        if (!l->blocked)
            run(feed, l, now_ns);
    }
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static bool too_slow(const struct gb_http_feed *feed, const struct gb_feed_listener *l, uint64_t now_ns) {
    if (!l->blocked)
        return false;
    if (feed->config.stall_ms && now_ns - l->blocked_ns > feed->config.stall_ms * GB_NS_PER_MS)
        return true;
    return !l->behind && l->seq < feed->ring_first;
}

static void tick(struct gb_http_feed *feed, uint64_t now_ns) {
    bool draining = atomic_load(&feed->draining);
    struct gb_feed_listener *l;
    struct gb_feed_listener *next;

    if (draining && feed->drain_until_ns == 0)
        feed->drain_until_ns = now_ns + DRAIN_NS;
    feed->next_tick_ns = now_ns + TICK_NS;
    for (l = feed->listeners; l; l = next) {
        next = l->next;
        if (too_slow(feed, l, now_ns)) {
            feed_listener_farewell(feed, l);
            drop(feed, l);
        } else if (draining && now_ns >= feed->drain_until_ns) {
            drop(feed, l);
        } else if (!l->blocked && l->held == 0 && now_ns - l->sent_ns >= feed->config.heartbeat_ms * GB_NS_PER_MS) {
            l->hold[l->held++] = gb_http_frame_ref(feed->heartbeat);
            run(feed, l, now_ns);
        }
    }
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static struct gb_feed_listener *take_entering(struct gb_http_feed *feed) {
    struct gb_feed_listener *list;

    pthread_mutex_lock(&feed->lock);
    list = feed->entering;
    feed->entering = NULL;
    pthread_mutex_unlock(&feed->lock);
    return list;
}

/* The first frame in the ring after that id. */
static uint64_t place_of(const struct gb_http_feed *feed, uint64_t after) {
    uint64_t low = feed->ring_first;
    uint64_t high = feed->ring_end;

    while (low < high) {
        uint64_t mid = (low + high) / 2;

        if (feed->ring[mid % GB_FEED_RING]->id <= after)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void enter(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns) {
    struct epoll_event ev = {.events = EPOLLRDHUP, .data.ptr = l};

    if (!feed->listeners)
        ring_restart(feed);
    l->prev = NULL;
    l->next = feed->listeners;
    if (l->next)
        l->next->prev = l;
    feed->listeners = l;
    l->sent_ns = now_ns;
    l->behind = l->after < feed->ring_after;
    l->seq = place_of(feed, l->after);
    if (epoll_ctl(feed->epoll_fd, EPOLL_CTL_ADD, l->fd, &ev) < 0)
        drop(feed, l);
    else
        run(feed, l, now_ns);
}

static bool in_force(const struct gb_http_feed *feed, const struct gb_feed_listener *l) {
    const struct gb_http_feed_config *config = &feed->config;

    if (l->tls && config->is_certified && !config->is_certified(config->server, l->tls))
        return false;
    return config->in_force && config->in_force(config->app, l->caller);
}

/* Also for a listener that was permitted before, and comes after the others of its epoch have gone. */
static void dismiss(struct gb_http_feed *feed, unsigned epoch) {
    struct gb_feed_listener *l;
    struct gb_feed_listener *next;

    for (l = feed->listeners; l; l = next) {
        next = l->next;
        if (l->epoch != epoch && !in_force(feed, l))
            drop(feed, l);
        else
            l->epoch = epoch;
    }
    feed->dismissed = epoch;
}

static void on_woken(struct gb_http_feed *feed, uint64_t now_ns) {
    /* Read before the ring is filled: the last event can be read before draining is set, and must be in the ring before
     * the listeners are dropped. */
    bool draining = atomic_load(&feed->draining);
    struct gb_feed_listener *list = take_entering(feed);
    unsigned epoch = atomic_load(&feed->epoch);
    struct gb_feed_listener *l;
    unsigned pieces;
    uint64_t count;

    if (read(feed->event_fd, &count, sizeof(count)) < 0)
        count = 0;
    while ((l = list)) {
        list = l->next;
        feed->dismissed = l->epoch != epoch ? l->epoch : feed->dismissed;
        enter(feed, l, now_ns);
    }
    /* In pieces, so that frames do not run out of the ring before the listeners were visited. Not without end, because
     * writable sockets are waiting. */
    for (pieces = 0; feed->listeners && pieces < TURN_PIECES && pull(feed); pieces++)
        tell_all(feed, now_ns);
    if (pieces == TURN_PIECES)
        gb_http_feed_wake(feed);
    if (epoch != feed->dismissed)
        dismiss(feed, epoch);
    feed->complete = draining && pieces < TURN_PIECES;
    if (feed->complete)
        tell_all(feed, now_ns);
}

static void on_listener(struct gb_http_feed *feed, struct gb_feed_listener *l, uint32_t events, uint64_t now_ns) {
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        drop(feed, l);
    else
        run(feed, l, now_ns);
}

static int timeout_ms(const struct gb_http_feed *feed) {
    if (!feed->listeners)
        return -1;
    return atomic_load(&feed->draining) ? DRAIN_TICK_MS : (int)(TICK_NS / GB_NS_PER_MS);
}

static void *feed_main(void *arg) {
    struct gb_http_feed *feed = arg;

    while (!atomic_load(&feed->stopping)) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(feed->epoll_fd, events, EVENTS, timeout_ms(feed));
        uint64_t now_ns = gb_clock_ns();
        bool woken = false;
        int i;

        for (i = 0; i < n; i++) {
            if (events[i].data.ptr)
                on_listener(feed, events[i].data.ptr, events[i].events, now_ns);
            else
                woken = true;
        }
        if (woken)
            on_woken(feed, now_ns);
        if (now_ns >= feed->next_tick_ns || atomic_load(&feed->draining))
            tick(feed, now_ns);
    }
    return NULL;
}

static int start_thread(struct gb_http_feed *feed, struct gb_error *err) {
    feed->started = gb_thread_start(&feed->thread, "gb-feed", feed_main, feed, err) == 0;
    return feed->started ? 0 : -1;
}

int gb_http_feed_start(struct gb_http_feed *feed, const struct gb_http_feed_config *config, struct gb_error *err) {
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    *feed = (struct gb_http_feed){.config = *config};
    gb_mutex_init(&feed->lock);
    feed->ring_first = feed->ring_end = 1; /* 0: of a listener that is behind it */
    feed->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    feed->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    feed->heartbeat = gb_http_frame_new(0, 0, "", "", config->hooks->heartbeat, strlen(config->hooks->heartbeat));
    feed->farewell = gb_http_frame_new(0, 0, "", "", config->hooks->farewell, strlen(config->hooks->farewell));
    if (!feed->heartbeat || !feed->farewell)
        gb_error_set(err, GB_ERR_INTERNAL, "no memory for the server");
    else if (feed->epoll_fd < 0 || feed->event_fd < 0 ||
             epoll_ctl(feed->epoll_fd, EPOLL_CTL_ADD, feed->event_fd, &ev) < 0)
        gb_error_errno(err, GB_ERR_INTERNAL, "epoll_create1 or eventfd", errno);
    else if (start_thread(feed, err) == 0)
        return 0;
    gb_http_feed_end(feed);
    return -1;
}

void gb_http_feed_wake(struct gb_http_feed *feed) {
    uint64_t one = 1;

    /* Full means that a signal is already pending. */
    if (write(feed->event_fd, &one, sizeof(one)) < 0)
        return;
}

void gb_http_server_tell(struct gb_http_server *server) {
    if (server->feed && server->feed->started)
        gb_http_feed_wake(server->feed);
}

void gb_http_feed_give(struct gb_http_feed *feed, struct gb_feed_listener *l) {
    pthread_mutex_lock(&feed->lock);
    l->next = feed->entering;
    feed->entering = l;
    pthread_mutex_unlock(&feed->lock);
    gb_http_feed_wake(feed);
}

void gb_http_feed_end(struct gb_http_feed *feed) {
    struct gb_feed_listener *list;
    struct gb_feed_listener *l;

    if (!feed->config.hooks)
        return;
    atomic_store(&feed->stopping, true);
    if (feed->started) {
        gb_http_feed_wake(feed);
        pthread_join(feed->thread, NULL);
    }
    while (feed->listeners)
        drop(feed, feed->listeners);
    for (list = take_entering(feed); (l = list);) {
        list = l->next;
        gb_feed_listener_free(l);
    }
    while (feed->ring_first < feed->ring_end)
        ring_pop(feed);
    gb_http_frame_unref(feed->heartbeat);
    gb_http_frame_unref(feed->farewell);
    if (feed->event_fd >= 0)
        close(feed->event_fd);
    if (feed->epoll_fd >= 0)
        close(feed->epoll_fd);
    pthread_mutex_destroy(&feed->lock);
    feed->started = false;
    feed->config.hooks = NULL;
}

/* --- frame -------------------------------------------------------------------------------------------------------- */

/* Frames; for their contracts see http.h. */

struct gb_http_frame *gb_http_frame_new(uint64_t id, uint64_t topics, const char *owner, const char *about,
                                        const char *text, size_t len) {
    struct gb_http_frame *f = malloc(sizeof(*f) + len);

    if (!f)
        return NULL;
    atomic_init(&f->refs, 1);
    f->id = id;
    f->topics = topics;
    strncpy(f->owner, owner, sizeof(f->owner) - 1);
    f->owner[sizeof(f->owner) - 1] = '\0';
    strncpy(f->about, about, sizeof(f->about) - 1);
    f->about[sizeof(f->about) - 1] = '\0';
    f->len = len;
    memcpy(f->text, text, len);
    return f;
}

struct gb_http_frame *gb_http_frame_ref(struct gb_http_frame *frame) {
    atomic_fetch_add_explicit(&frame->refs, 1, memory_order_relaxed);
    return frame;
}

void gb_http_frame_unref(struct gb_http_frame *frame) {
    if (frame && atomic_fetch_sub_explicit(&frame->refs, 1, memory_order_acq_rel) == 1)
        free(frame);
}

/* --- listener ----------------------------------------------------------------------------------------------------- */

/* From the response that makes a listener to its end. */

static void too_many(unsigned max, const char *which, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SATURATED,
                 "%u connections%s listen to the feed, the permitted number (--max-feed-listeners); try again later, "
                 "or ask for pages of it with Accept: application/json",
                 max, which);
}

struct gb_feed_listener *gb_feed_listener_new(atomic_uint *count, unsigned max, struct gb_error *err) {
    struct gb_feed_listener *l = calloc(1, sizeof(*l));

    if (!l) {
        gb_error_memory(err, "listener");
        return NULL;
    }
    if (atomic_fetch_add(count, 1) >= max) {
        atomic_fetch_sub(count, 1);
        free(l);
        too_many(max, "", err);
        return NULL;
    }
    l->counted = count;
    l->fd = -1;
    return l;
}

void gb_feed_listener_free(struct gb_feed_listener *l) {
    if (!l)
        return;
    while (l->piece_at < l->piece_count)
        gb_http_frame_unref(l->piece[l->piece_at++]);
    free(l->piece);
    while (l->held > 0)
        gb_http_frame_unref(l->hold[--l->held]);
    gb_peer_end(l->peer);
    gb_source_end(l->source);
    gb_bound_listener_ended(l->client);
    if (l->tls)
        gb_tls_end(l->tls);
    gb_tls_free(l->tls);
    if (l->fd >= 0)
        close(l->fd);
    if (l->remote)
        atomic_fetch_sub(l->remote, 1);
    atomic_fetch_sub(l->counted, 1);
    free(l);
}

/* A share is kept for UNIX sockets, as it is of connections. */
static int take_remote(struct gb_http_feed *feed, struct gb_feed_listener *l, struct gb_error *err) {
    l->remote = &feed->remote;
    if (atomic_fetch_add(l->remote, 1) < feed->config.remote_max)
        return 0;
    too_many(feed->config.remote_max, " over TCP", err);
    return -1;
}

int gb_http_response_listen(struct gb_http_request *request, struct gb_http_response *response,
                            const struct gb_http_listening *what, struct gb_error *err) {
    struct gb_http_feed *feed = gb_http_server_of(request)->feed;
    struct gb_feed_listener *l;

    if (!feed)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "this server has no feed");
    l = gb_feed_listener_new(&feed->count, feed->config.listeners_max, err);
    if (!l || gb_bound_listener_opens(request, &l->client, err) < 0 ||
        (!request->local && take_remote(feed, l, err) < 0)) {
        gb_feed_listener_free(l);
        return -1;
    }
    strncpy(l->owner, what->owner, sizeof(l->owner) - 1);
    strncpy(l->prefix, what->prefix, sizeof(l->prefix) - 1);
    l->prefix_len = strlen(l->prefix);
    l->topics = what->topics;
    l->caller = request->caller;
    l->epoch = what->epoch;
    l->after = l->begin = what->after;
    response->listener = l;
    response->listener_free = gb_feed_listener_free;
    return 0;
}
