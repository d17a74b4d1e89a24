/* Handshakes of TLS that are not done, the oldest first: when all places are taken, it gives way to a newcomer. */
#ifndef GB_HTTP_MHD_HANDSHAKES_H
#define GB_HTTP_MHD_HANDSHAKES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gb_http_server;
struct gb_loop;

/* Within its front; the loop's thread alone touches it. */
struct gb_handshake {
    struct gb_handshake *prev;
    struct gb_handshake *next;
    uint64_t since_ns;
    bool listed;
};

struct gb_handshakes {
    struct gb_handshake *first;
    struct gb_handshake *last;
    atomic_uint_fast64_t since_ns; /* of the first, for other threads; 0: none */
};

/* [the loop's thread] Enter: it begins now. Leave: it is done, or has ended; may be called again. */
void gb_handshake_enter(struct gb_handshakes *all, struct gb_handshake *one);
void gb_handshake_leave(struct gb_handshakes *all, struct gb_handshake *one);

/* [any thread] Returns the loop that has the one which should give way, or NULL: each has only just begun. */
struct gb_loop *gb_handshakes_oldest(struct gb_http_server *server);

/* [the loop's thread] Returns that one, or NULL. */
struct gb_handshake *gb_handshakes_first(const struct gb_handshakes *all);

#endif
