/* Leases on exported memory, and the connections that hold them. */
#ifndef GB_API_RESOURCES_LEASES_H
#define GB_API_RESOURCES_LEASES_H

#include <jansson.h>
#include <pthread.h>

#include "api/context.h"
#include "base/json_writer.h"
#include "core/core.h"
#include "http/http.h"

/* Connections that map: their permission, their leases, and what ends with them. */

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

/* Returns the share of the request's connection, with room for one more lease; makes the share if it is missing.
 * Returns NULL with LOCAL_ONLY or SATURATED. */
struct gb_share *gb_share_take(struct gb_http_request *request, struct gb_error *err);

/* Returns the holder of the leases of the request's connection (gb_holder_id), or 0. */
uint64_t gb_share_holder(const struct gb_http_request *request);

/* The server's hooks of the same names: a connection's leases end with it, and while it has any it is not idle.
 * explain adds the holders to the answer that a buffer is mapped. */
void gb_api_peer_gone(void *app, struct gb_http_peer *peer);
void gb_api_peer_free(void *app, struct gb_http_peer *peer);
bool gb_api_peer_busy(void *app, const struct gb_http_peer *peer);
void gb_api_explain(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response);

/* A lease on its way to the client, shared by map and export. If the client does not get it, because it has left or its
 * wait has timed out, the lease ends. */

/* Writes the reply to a call that has succeeded, one JSON object. */
typedef void gb_grant_render(struct gb_json_writer *out, const struct gb_http_request *request,
                             const struct gb_lease_call *call);

/* Makes the call for gb_lease_map or gb_lease_export, which must follow, and then gb_grant_resume. share: the
 * connection that the lease belongs to, borrowed; NULL: no connection. Returns NULL with SATURATED when memory is
 * exhausted. */
struct gb_lease_call *gb_grant_begin(struct gb_http_request *request, struct gb_share *share, gb_grant_render *render,
                                     struct gb_error *err);

/* Replies at once when the call has finished, else waits for it. */
gb_http_handler gb_grant_resume;

/* Reads the field mode, "read" when it is left out. Returns 0, or -1 with WRONG_TYPE or INVALID_ARGUMENT. */
int gb_grant_mode(const json_t *body, bool *ret_write, struct gb_error *err);

/* Writes GB_EXPORT_HANDLE_BYTES bytes in base64; null for NULL. */
void gb_grant_handle(struct gb_json_writer *out, const char *key, const unsigned char *bytes);

#endif
