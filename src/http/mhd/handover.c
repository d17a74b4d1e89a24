/* Only an answer of 101 makes libmicrohttpd say which bytes it has read behind the header, so it is given such an
 * answer. A pair of sockets stands in for the connection, and its 101 goes there. */
#include "http/mhd/handover.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/exchange/step.h"
#include "http/mhd/front.h"
#include "http/mhd/leave.h"

struct gb_handover {
    struct gb_handoff to; /* the live socket */
    int other_end;        /* of the stand-in */
};

static void free_handover(struct gb_handover *h) {
    if (!h)
        return;
    if (h->to.fd >= 0)
        close(h->to.fd);
    if (h->other_end >= 0)
        close(h->other_end);
    free(h);
}

/* The exchange continues without libmicrohttpd. */
static void hand_to_transfer(struct gb_loop *loop, struct gb_conn *c, struct gb_exchange *ex) {
    struct gb_handover *h = c->handover;
    struct gb_handoff socket = h->to;

    h->to.fd = -1;
    free_handover(h);
    c->handover = NULL;
    loop->handovers--;
    loop->resumed = true;
    gb_mhd_part(c, ex);
    gb_mhd_give(loop, ex, &socket);
}

static void on_upgrade(void *cls, struct MHD_Connection *connection, void *con_cls, const char *extra, size_t extra_len,
                       MHD_socket sock, struct MHD_UpgradeResponseHandle *handle) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = con_cls;
    struct gb_conn *c = ex->info;

    (void)connection;
    (void)sock;
    ex->early = extra_len > 0 ? malloc(extra_len) : NULL;
    if (ex->early) {
        memcpy(ex->early, extra, extra_len);
        ex->early_len = extra_len;
    } else if (extra_len > 0) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for the body; try again later");
        ex->close = true;
        gb_exchange_fail(ex, &err);
    }
    hand_to_transfer(cls, c, ex);
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

int gb_mhd_handover_init(struct gb_loop *loop, struct gb_error *err) {
    loop->handover = MHD_create_response_for_upgrade(on_upgrade, loop);
    if (!loop->handover || MHD_add_response_header(loop->handover, MHD_HTTP_HEADER_UPGRADE, "gpubufd") != MHD_YES)
        return gb_error_set(err, GB_ERR_INTERNAL, "libmicrohttpd cannot hand over connections");
    return 0;
}

void gb_mhd_handover_done(struct gb_loop *loop) {
    if (loop->handover)
        MHD_destroy_response(loop->handover);
    loop->handover = NULL;
}

static struct gb_handover *new_handover(struct gb_exchange *ex, int *ret_stand_in) {
    struct gb_handover *h = malloc(sizeof(*h));
    int pair[2];

    if (!h)
        return NULL;
    h->other_end = -1;
    h->to = gb_mhd_describe(ex);
    h->to.fd = ex->info->secure ? -1 : gb_mhd_duplicate(ex);
    if ((h->to.fd < 0 && !ex->info->front) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        free_handover(h);
        return NULL;
    }
    *ret_stand_in = pair[0];
    h->other_end = pair[1];
    return h;
}

int gb_mhd_hand_over(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_conn *c = ex->info;
    int stand_in;

    c->handover = new_handover(ex, &stand_in);
    if (!c->handover)
        return -1;
    loop->handovers++;
    /* Suspended first, which takes it out of libmicrohttpd's epoll set: the set knows the socket, not its number. */
    if (MHD_queue_response(ex->conn, MHD_HTTP_SWITCHING_PROTOCOLS, loop->handover) == MHD_YES) {
        MHD_suspend_connection(ex->conn);
        if (c->front && gb_front_unread(c) < 0)
            shutdown(c->fd, SHUT_RDWR);
        if (dup3(stand_in, c->fd, O_CLOEXEC) < 0)
            shutdown(c->fd, SHUT_RDWR);
        if (c->front)
            gb_front_take(c, &c->handover->to);
        MHD_resume_connection(ex->conn);
        close(stand_in);
        return 0;
    }
    close(stand_in);
    free_handover(c->handover);
    c->handover = NULL;
    loop->handovers--;
    return -1;
}

void gb_mhd_not_handed_over(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_HEADERS_TOO_LARGE, "the header leaves no room for reading the body");
    ex->close = true;
    gb_exchange_fail(ex, &err);
    hand_to_transfer(loop, ex->info, ex);
}
