/* Connections that map: their permission, their leases, and what ends with them. */
#ifndef GB_API_SHARE_SHARE_H
#define GB_API_SHARE_SHARE_H

#include <pthread.h>

#include "api/context.h"
#include "core/core.h"

/* What the application keeps for one connection: peer->app. Lives as long as the peer. */
struct gb_share {
    pthread_mutex_t lock;
    struct gb_holder *holder; /* NULL: the connection has ended */
    int64_t *lease;           /* the leases that its client was given and has not ended, in no order */
    size_t leases;
    size_t size;
};

/* Checks that the request's client may map what is in that session. Returns 0, or -1 with LOCAL_ONLY,
 * MAP_NOT_PERMITTED, FORBIDDEN or UNAUTHENTICATED. */
int gb_share_permit(const struct gb_http_request *request, const char *session, bool write, struct gb_error *err);

/* The same for a handle that needs no connection: over TCP too, if tokens or --map-uids any permit it. Returns 0, or -1
 * with MAP_NOT_PERMITTED, FORBIDDEN or UNAUTHENTICATED. */
int gb_share_permit_export(const struct gb_http_request *request, const char *session, bool write,
                           struct gb_error *err);

/* Returns the share of the request's connection, with room for one more lease; makes it when there is none. Returns
 * NULL with LOCAL_ONLY or SATURATED. */
struct gb_share *gb_share_take(struct gb_http_request *request, struct gb_error *err);

/* Returns the holder of the leases of the request's connection (gb_holder_id), or 0 when it has none. */
uint64_t gb_share_holder(const struct gb_http_request *request);

/* Adds a lease that the client was given; removes one that the client has ended; tells whether the client has it. */
void gb_share_add(struct gb_share *share, int64_t lease);
void gb_share_remove(struct gb_share *share, int64_t lease);
bool gb_share_has(struct gb_share *share, int64_t lease);

/* The server's hooks of the same names: a connection's leases end with it, and while it has any it is not idle.
 * explain adds the holders to the answer that a buffer is mapped. */
void gb_api_peer_gone(void *app, struct gb_http_peer *peer);
void gb_api_peer_free(void *app, struct gb_http_peer *peer);
bool gb_api_peer_busy(void *app, const struct gb_http_peer *peer);
void gb_api_explain(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response);

#endif
