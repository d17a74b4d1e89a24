/* Connections without a request: when all places are taken, the one that has been quiet for longest gives way to a
 * newcomer. */
#ifndef GB_HTTP_MHD_QUIET_H
#define GB_HTTP_MHD_QUIET_H

#include <stdatomic.h>
#include <stdbool.h>

struct gb_conn;
struct gb_http_server;
struct gb_loop;

/* Connections without a request, the longest quiet first; the loop's thread alone touches them. */
struct gb_quiet {
    struct gb_conn *first;
    struct gb_conn *last;
    atomic_uint_fast64_t since_ns; /* of the first, for other threads; 0: none */
};

/* [the loop's thread] Enter: the connection has no request from now on. Leave: it has one, or ends. */
void gb_quiet_enter(struct gb_loop *loop, struct gb_conn *c);
void gb_quiet_leave(struct gb_loop *loop, struct gb_conn *c);

/* [any thread] Returns the loop that has the connection that should give way to a newcomer, or NULL. local: the
 * newcomer comes over a UNIX socket. */
struct gb_loop *gb_quiet_longest(struct gb_http_server *server, bool local);

/* [the loop's thread] Ends that connection. False: none. */
bool gb_quiet_give_way(struct gb_loop *loop, bool local);

#endif
