/* The connections of an HTTP loop: how they come to it, and how they end. */
#ifndef GB_HTTP_MHD_CONN_H
#define GB_HTTP_MHD_CONN_H

#include <microhttpd.h>

#include "http/exchange/exchange.h"
#include "http/exchange/handoff.h"
#include "http/exchange/progress.h"

struct gb_handover;
struct gb_loop;

/* One connection on an HTTP loop; touched by that loop's thread alone. */
struct gb_conn {
    struct gb_exchange *begun; /* the request whose headers are being read */
    struct gb_conn *prev;
    struct gb_conn *next;
    struct gb_loop *loop;
    struct MHD_Connection *mhd;
    struct gb_exchange *ex; /* the request in progress, or NULL */
    int fd;
    bool local;
    struct gb_peer *peer;     /* NULL: a TCP socket, or it has left with the connection */
    struct gb_source *source; /* NULL: a UNIX socket, or it has left with the connection */
    struct gb_http_address from;
    unsigned listener;      /* as in gb_handoff */
    bool secure;            /* its socket is one end of the pair of a front, and its place is the front's */
    struct gb_front *front; /* NULL: it is not secure, or the front has ended */
    uint32_t last_target;   /* a hash of what the last request asked for */
    bool asked;             /* it has had a whole request */
    bool quiet;             /* listed in quiet.h */
    struct gb_conn *quiet_prev;
    struct gb_conn *quiet_next;
    bool returning;               /* as in gb_handoff */
    uint64_t peek_ns;             /* when to check next for an unnoticed end; 0: with the next sweep */
    bool left;                    /* a transfer loop has the socket */
    struct gb_handover *handover; /* of the socket and the bytes behind the header; NULL: none is under way */
    uint64_t base;                /* bytes that were read from the socket before it came to this loop */
    uint64_t consumed;            /* bytes of finished requests since */
    uint64_t half_closed_ns; /* when the client that waits was seen to send no more, or asked about that; 0: not yet */
    uint64_t idle_ns;        /* since when no request is in progress; 0: one is */
    uint64_t replied_ns;     /* when libmicrohttpd got the reply; 0: not yet */
    struct gb_progress progress; /* of that reply, or of its bytes in the kernel's queue */
    bool read_all;               /* idle, and the client has taken all replies */
    unsigned fruitless;          /* callbacks since the last sweep that had nothing to do */
    bool suspect;                /* it may be the one for which the loop turns, see watchdog.h */
};

/* [the loop's thread, outside libmicrohttpd's callbacks] The loop takes a connected socket. If it cannot, the socket is
 * closed and its place given back. */
void gb_loop_adopt(struct gb_loop *loop, const struct gb_handoff *handoff);
/* The same for a socket that came by gb_loop_give: the loop's load counts it already. */
void gb_loop_adopt_given(struct gb_loop *loop, const struct gb_handoff *handoff);

/* A gb_hand_back: gives the connection to the least loaded loop; to own if none is less loaded. */
void gb_loop_hand_back(struct gb_http_server *server, struct gb_loop *own, const struct gb_handoff *handoff);

/* libmicrohttpd's callbacks; cls is the loop. */
void gb_conn_on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                           enum MHD_ConnectionNotificationCode code);
void gb_conn_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code);

#endif
