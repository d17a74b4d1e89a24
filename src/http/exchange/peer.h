/* The other end of a UNIX socket, inside the http layer. It travels with the connection: gb_handoff, gb_conn. */
#ifndef GB_HTTP_EXCHANGE_PEER_H
#define GB_HTTP_EXCHANGE_PEER_H

#include <stdatomic.h>

#include "http/http.h"

struct gb_peer {
    struct gb_http_peer seen; /* the part that handlers see */
    atomic_int refs;          /* the connection's, its requests', and the watch's */
    struct gb_http_server *server;
    bool held;    /* the application has something for it; changed and read where the connection is */
    int watch_fd; /* from then on; a duplicate, open as long as the peer lives */
};

/* Of a connected UNIX socket. Returns NULL if memory is exhausted or the kernel does not name the process. */
struct gb_peer *gb_peer_new(struct gb_http_server *server, int fd);
struct gb_peer *gb_peer_ref(struct gb_peer *peer); /* both take NULL */
void gb_peer_unref(struct gb_peer *peer);

/* The connection ends: gives its reference back. NULL is accepted. */
void gb_peer_end(struct gb_peer *peer);

/* Whether the application still holds something for it, so that a quiet connection is not idle. NULL: no. */
bool gb_peer_busy(const struct gb_peer *peer);

/* Sends the response's descriptors with an interim response, and closes them here in any case. Returns 0, also without
 * any, or -1 with errno: the connection cannot be used any more. */
int gb_peer_send(int sock, struct gb_http_response *response);

/* Sends descriptors, which stay the caller's, with an interim response. Returns 0, or -1 with errno; then nothing was
 * sent. */
int gb_peer_hand(int sock, const int *fds, unsigned count);

/* The watch: server->peers_fd, which the first loop polls. */
int gb_peers_init(struct gb_http_server *server, struct gb_error *err);
void gb_peers_event(struct gb_http_server *server);
/* After all connections have ended. */
void gb_peers_done(struct gb_http_server *server);

#endif
