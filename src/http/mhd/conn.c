#include "http/mhd/conn.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "http/mhd/front.h"
#include "http/mhd/handover.h"
#include "http/mhd/leave.h"
#include "http/mhd/loop.h"
#include "http/mhd/refuse.h"
#include "http/mhd/request.h"

void gb_loop_adopt_given(struct gb_loop *loop, const struct gb_handoff *handoff) {
    /* Our address, because 0.9.75 copies a client's UNIX path past the end of its own buffer (doc/design/data-path.md,
     * trap 15). */
    struct sockaddr addr = {.sa_family = AF_UNIX};

    if (handoff->squeezed && !gb_refuse_or_squeeze(loop, handoff)) {
        atomic_fetch_sub(&loop->load, 1);
        return;
    }
    if (handoff->secure) {
        gb_front_adopt(loop, handoff);
        return;
    }
    loop->adopting = handoff;
    /* On failure it has closed the descriptor. If it never reported the connection, the rest is still ours. */
    if (MHD_add_connection(loop->mhd, handoff->fd, &addr, sizeof(addr)) != MHD_YES && loop->adopting) {
        gb_peer_end(handoff->peer);
        gb_conn_slot_end(&loop->server->places, handoff->source);
        atomic_fetch_sub(&loop->load, 1);
    }
    loop->adopting = NULL;
}

void gb_loop_adopt(struct gb_loop *loop, const struct gb_handoff *handoff) {
    atomic_fetch_add(&loop->load, 1);
    gb_loop_adopt_given(loop, handoff);
}

void gb_loop_hand_back(struct gb_http_server *server, struct gb_loop *own, const struct gb_handoff *handoff) {
    struct gb_loop *best = gb_loop_pick(server, own);

    if (best == own)
        gb_loop_adopt(best, handoff);
    else
        gb_loop_give(best, handoff);
}

static void started(struct gb_loop *loop, struct MHD_Connection *mhd, void **socket_context) {
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const struct gb_handoff *handoff = loop->adopting;
    struct gb_conn *c = handoff ? calloc(1, sizeof(*c)) : NULL;

    loop->adopting = NULL; /* its peer and place are given back here, or by closed */
    if (!c || !fd) {
        free(c);
        if (handoff && handoff->front)
            atomic_fetch_add(&loop->load, 1); /* closed gives it back, and so does the front */
        *socket_context = NULL;               /* gb_mhd_on_request refuses a connection without a context */
        if (handoff && !handoff->front) {
            gb_peer_end(handoff->peer);
            gb_conn_slot_end(&loop->server->places, handoff->source);
        }
        return;
    }
    *socket_context = c;
    c->peer = handoff->peer;
    c->source = handoff->source;
    c->secure = handoff->secure;
    c->listener = handoff->listener;
    c->front = handoff->front;
    if (c->front)
        gb_front_opened(c);
    c->from = handoff->from;
    c->loop = loop;
    c->mhd = mhd;
    c->fd = fd->connect_fd;
    c->local = handoff->local;
    c->returning = c->asked = handoff->returning;
    if (!c->local && !c->secure)
        c->base = handoff->counted ? handoff->taken : gb_socket_taken(c->fd);
    c->idle_ns = loop->now_ns;
    loop->progress++;
    c->next = loop->conns;
    if (c->next)
        c->next->prev = c;
    loop->conns = c;
    gb_quiet_enter(loop, c);
}

static void closed(struct gb_loop *loop, struct gb_conn *c) {
    if (!c || !c->secure)
        atomic_fetch_sub(&loop->load, 1);
    loop->progress++;
    if (!c)
        return;
    if (c->secure)
        gb_front_closed(c);
    else if (!c->left)
        gb_conn_slot_end(&loop->server->places, c->source);
    gb_quiet_leave(loop, c);
    gb_mhd_forgotten(c);
    gb_peer_end(c->peer);
    if (c->prev)
        c->prev->next = c->next;
    else
        loop->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

void gb_conn_on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                           enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        started(cls, mhd, socket_context);
    else
        closed(cls, *socket_context);
}

void gb_conn_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code) {
    const union MHD_ConnectionInfo *ctx = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct gb_conn *c = ctx ? ctx->socket_context : NULL;
    struct gb_exchange *ex = *con_cls;

    *con_cls = NULL;
    if (c)
        c->begun = NULL;
    if (!ex || (c && c->left))
        return; /* the transfer loop has it */
    if (c && c->handover) {
        gb_mhd_not_handed_over(cls, ex);
        return;
    }
    ex->broken = code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    gb_mhd_finished(ex);
}
