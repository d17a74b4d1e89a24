/* Redirects within a fleet: a node that does not have the session names the one that has it. */
#include <string.h>

#include "client/http.h"

#define HOPS_MAX 3

/* Bytes of "http[s]://HOST[:PORT]" at the begin of a URL; 0: it is none. */
static size_t origin_bytes(const char *url) {
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
    size_t n = host ? strcspn(host, "/?#") : 0;

    return n > 0 && !memchr(host, '@', n) ? (size_t)(host - url) + n : 0;
}

bool gbc_redirect_is(const struct gbc_reply *reply) {
    const char *location = reply->location.bytes > 0 ? reply->location.data : "";
    const char *query = strchr(location, '?');

    return reply->status == 307 && query && (strncmp(query, "?via=", 5) == 0 || strstr(query, "&via=")) &&
           origin_bytes(location) > 0;
}

const char *gbc_redirect_origin(const struct gbc_conn *conn) {
    return conn->origin.bytes > 0 ? conn->origin.data : conn->set->url;
}

bool gbc_redirect_away(const struct gbc_conn *conn) {
    return conn->origin.bytes > 0 && (conn->set->socket || strcmp(conn->origin.data, conn->set->base) != 0);
}

void gbc_redirect_home(struct gbc_conn *conn) {
    gbc_text_clear(&conn->hop);
    gbc_text_clear(&conn->origin);
    conn->hops = 0;
}

/* What was read of the body is read again. */
static int rewind_body(struct gbc_conn *conn, const char *origin, int bytes, struct gpubuf_error *err) {
    const struct gbc_up *up = conn->request->up;

    if (!up || (up->rewind && up->rewind(up->arg) == 0))
        return 0;
    return gbc_error_set(err, GPUBUF_INPUT_FAILED,
                         "the session is at another node, and what was read of a pipe cannot be sent again: give a "
                         "file, or ask %.*s itself",
                         bytes, origin);
}

int gbc_redirect_take(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *location = conn->reply.location.data;
    size_t bytes = origin_bytes(location);

    if (conn->hops == HOPS_MAX)
        return gbc_error_set(err, GPUBUF_OWNER_UNKNOWN,
                             "the nodes of the fleet redirect more than %d times, at last to %.*s", HOPS_MAX,
                             (int)bytes, location);
    if ((conn->set->tls || (conn->origin.bytes > 0 && strncmp(conn->origin.data, "https:", 6) == 0)) &&
        strncmp(location, "https:", 6) != 0)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                             "%s redirects out of TLS, to %.*s, which is not followed: the nodes of the fleet are to "
                             "advertise addresses of https",
                             gbc_redirect_origin(conn), (int)bytes, location);
    if (rewind_body(conn, location, (int)bytes, err) < 0)
        return -1;
    gbc_text_clear(&conn->hop);
    gbc_text_clear(&conn->origin);
    gbc_text_add(&conn->hop, location, strlen(location));
    gbc_text_add(&conn->origin, location, bytes);
    conn->hops++;
    return conn->hop.failed || conn->origin.failed ? gbc_error_memory(err) : 0;
}
