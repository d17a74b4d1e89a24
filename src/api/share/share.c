#include "api/share/share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/limits.h"
#include "base/thread.h"

/* --- who may ------------------------------------------------------------------------------------------------------ */

static bool listed(const struct gb_id_list *list, uint32_t id) {
    unsigned i;

    for (i = 0; i < list->count && list->id[i] != id; i++)
        ;
    return list->any || i < list->count;
}

/* The kernel names only the first group of a peer; the others are looked up by the lists here. */
static bool in_group(const struct gb_http_request *request, const struct gb_id_list *list) {
    unsigned i;

    if (listed(list, request->peer->gid))
        return true;
    for (i = 0; i < list->count; i++) {
        if (gb_http_peer_in_group(request, list->id[i]))
            return true;
    }
    return false;
}

static int no_uid(const struct gb_http_peer *peer, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_MAP_NOT_PERMITTED,
                        "user %u may not map here: start the daemon with --map-uids %u, or --map-gids and a group of "
                        "that user, or use tokens of scope map",
                        (unsigned)peer->uid, (unsigned)peer->uid);
}

int gb_share_permit_export(const struct gb_http_request *request, const char *session, bool write,
                           struct gb_error *err) {
    const struct gb_api *api = gb_api_of(request);
    const struct gb_http_peer *peer = request->peer;

    if (gb_tokens_required(api->core))
        return gb_api_permit(request, write ? GB_SCOPE_MAP_WRITE : GB_SCOPE_MAP, session, err);
    if (!peer && (api->map_peers.uids.any || api->map_peers.gids.any))
        return 0;
    if (!peer)
        return gb_error_set(
            err, GB_ERR_MAP_NOT_PERMITTED,
            "a connection over TCP does not name its user: use the UNIX socket or tokens of scope map, or "
            "start the daemon with --map-uids any");
    if (peer->uid == 0 || peer->uid == geteuid() || listed(&api->map_peers.uids, peer->uid) ||
        in_group(request, &api->map_peers.gids))
        return 0;
    return no_uid(peer, err);
}

int gb_share_permit(const struct gb_http_request *request, const char *session, bool write, struct gb_error *err) {
    if (!request->peer)
        return gb_error_set(
            err, GB_ERR_LOCAL_ONLY,
            "memory is mapped over the UNIX socket alone, with HTTP/1.1: a descriptor goes no other way");
    return gb_share_permit_export(request, session, write, err);
}

/* --- what a connection holds -------------------------------------------------------------------------------------- */

static void share_free(struct gb_share *share) {
    if (!share)
        return;
    gb_holder_end(share->holder);
    pthread_mutex_destroy(&share->lock);
    free(share->lease);
    free(share);
}

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the mapping; try again later");
}

static int make_share(struct gb_http_request *request, struct gb_share **ret, struct gb_error *err) {
    const struct gb_http_peer *peer = request->peer;
    struct gb_share *share = calloc(1, sizeof(*share));

    if (!share)
        return no_memory(err);
    gb_mutex_init(&share->lock);
    if (gb_holder_new(gb_api_of(request)->core, peer->pid, peer->uid, peer->gid, &share->holder, err) < 0 ||
        gb_http_peer_hold(request, share, err) < 0) {
        share_free(share);
        return -1;
    }
    *ret = share;
    return 0;
}

struct gb_share *gb_share_take(struct gb_http_request *request, struct gb_error *err) {
    struct gb_share *share = request->peer->app;
    int r = 0;

    if (!share && make_share(request, &share, err) < 0)
        return NULL;
    pthread_mutex_lock(&share->lock);
    if (share->leases == share->size) {
        size_t size = share->size ? share->size * 2 : 8;
        int64_t *bigger = realloc(share->lease, size * sizeof(*bigger));

        if (bigger) {
            share->lease = bigger;
            share->size = size;
        } else {
            r = no_memory(err);
        }
    }
    pthread_mutex_unlock(&share->lock);
    return r < 0 ? NULL : share;
}

uint64_t gb_share_holder(const struct gb_http_request *request) {
    struct gb_share *share = request->peer ? request->peer->app : NULL;
    uint64_t id = 0;

    if (!share)
        return 0;
    pthread_mutex_lock(&share->lock);
    if (share->holder)
        id = gb_holder_id(share->holder);
    pthread_mutex_unlock(&share->lock);
    return id;
}

void gb_share_add(struct gb_share *share, int64_t lease) {
    pthread_mutex_lock(&share->lock);
    if (share->leases < share->size)
        share->lease[share->leases++] = lease;
    pthread_mutex_unlock(&share->lock);
}

static size_t find_locked(const struct gb_share *share, int64_t lease) {
    size_t i;

    for (i = 0; i < share->leases && share->lease[i] != lease; i++)
        ;
    return i;
}

void gb_share_remove(struct gb_share *share, int64_t lease) {
    size_t i;

    pthread_mutex_lock(&share->lock);
    i = find_locked(share, lease);
    if (i < share->leases)
        share->lease[i] = share->lease[--share->leases];
    pthread_mutex_unlock(&share->lock);
}

bool gb_share_has(struct gb_share *share, int64_t lease) {
    bool has;

    pthread_mutex_lock(&share->lock);
    has = find_locked(share, lease) < share->leases;
    pthread_mutex_unlock(&share->lock);
    return has;
}

/* --- the server's hooks ------------------------------------------------------------------------------------------- */

void gb_api_peer_gone(void *app, struct gb_http_peer *peer) {
    struct gb_share *share = peer->app;
    struct gb_holder *holder;

    (void)app;
    pthread_mutex_lock(&share->lock);
    holder = share->holder;
    share->holder = NULL;
    pthread_mutex_unlock(&share->lock);
    gb_holder_end(holder);
}

void gb_api_peer_free(void *app, struct gb_http_peer *peer) {
    (void)app;
    share_free(peer->app);
}

bool gb_api_peer_busy(void *app, const struct gb_http_peer *peer) {
    struct gb_share *share = peer->app;
    bool busy;

    (void)app;
    pthread_mutex_lock(&share->lock);
    busy = share->holder && gb_holder_maps(share->holder); /* other connections may have ended the client's leases */
    pthread_mutex_unlock(&share->lock);
    return busy;
}
