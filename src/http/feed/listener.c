/* From the response that makes a listener to its end. */
#include "http/feed/listener.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/exchange/client.h"
#include "http/exchange/conn_slots.h"
#include "http/exchange/peer.h"
#include "http/exchange/server_state.h"
#include "http/feed/feed.h"
#include "http/tls/tls.h"

static void too_many(unsigned max, const char *which, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SATURATED,
                 "%u connections%s listen to the feed, the permitted number (--max-feed-listeners); try again later, "
                 "or ask for pages of it with Accept: application/json",
                 max, which);
}

struct gb_feed_listener *gb_feed_listener_new(atomic_uint *count, unsigned max, struct gb_error *err) {
    struct gb_feed_listener *l = calloc(1, sizeof(*l));

    if (!l) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the listener; try again later");
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
    gb_http_listener_ended(l->client);
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
    if (!l || gb_http_listener_opens(request, &l->client, err) < 0 ||
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
