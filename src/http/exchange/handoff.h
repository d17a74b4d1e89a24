/* A connected socket on its way to a loop, and what is known of it. */
#ifndef GB_HTTP_EXCHANGE_HANDOFF_H
#define GB_HTTP_EXCHANGE_HANDOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "http/exchange/conn_slots.h"
#include "http/exchange/peer.h"

struct gb_front;
struct gb_tls;

struct gb_handoff {
    int fd;
    bool local;               /* a UNIX socket */
    struct gb_peer *peer;     /* of a UNIX socket; a reference, which goes along */
    struct gb_source *source; /* of a TCP socket; its count goes along */
    struct gb_http_address from;
    bool secure;            /* of a listener for TLS */
    unsigned listener;      /* which one it came by */
    struct gb_tls *tls;     /* owned, goes along; NULL: plain, or the handshake has not begun */
    struct gb_front *front; /* while libmicrohttpd takes one end of its pair */
    bool squeezed;          /* admitted beyond the limit: the loop ends a quiet connection for it, or refuses it */
    bool returning;         /* it has been here before: a client that keeps its connection */
    bool counted;           /* taken is known */
    uint64_t taken;         /* bytes that were read from it before */
};

/* [any thread] The connection ends here: gives the peer back, closes the socket if fd >= 0, and gives the place
 * back. */
void gb_handoff_end(struct gb_conn_slots *slots, const struct gb_handoff *handoff);

#endif
