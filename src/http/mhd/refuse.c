#include "http/mhd/refuse.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/message/problem.h"
#include "http/message/response.h"
#include "http/message/status.h"
#include "http/mhd/front.h"

/* Says in numbers which limit was reached. */
static void explain(const struct gb_http_server *server, enum gb_refusal why, bool local, char *out, size_t size) {
    const struct gb_conn_slots *places = &server->places;
    unsigned long long taken = atomic_load(&places->taken);
    unsigned long long remote = atomic_load(&places->remote);

    if (why == GB_REFUSAL_SOURCE)
        snprintf(out, size,
                 "%u connections of this address are open, as many as one may have (--max-connections-per-address)",
                 places->source_max);
    else if (why == GB_REFUSAL_MEMORY)
        snprintf(out, size, "no memory for another connection");
    else if (why == GB_REFUSAL_PLAIN)
        snprintf(out, size, "this address is for TLS: ask it with https://");
    else if (why == GB_REFUSAL_FULL && !local && taken < places->max)
        snprintf(out, size, "%llu of %llu connections over TCP are in use; %llu are kept for the UNIX socket", remote,
                 (unsigned long long)places->remote_max, (unsigned long long)(places->max - places->remote_max));
    else
        snprintf(out, size, "%llu of %llu connections are in use%s", taken, (unsigned long long)places->max,
                 why == GB_REFUSAL_DRAINING ? "; no more are taken" : "");
}

static enum gb_code code_of(enum gb_refusal why) {
    switch (why) {
    case GB_REFUSAL_DRAINING:
        return GB_ERR_DRAINING;
    case GB_REFUSAL_PLAIN:
        return GB_ERR_MALFORMED_REQUEST;
    case GB_REFUSAL_SOURCE:
        return GB_ERR_TOO_MANY_REQUESTS;
    default:
        return GB_ERR_SATURATED;
    }
}

void gb_refuse(struct gb_loop *loop, const struct gb_handoff *handoff, enum gb_refusal why) {
    struct gb_http_server *server = loop->server;
    struct gb_error error = GB_ERROR_INIT;
    char detail[160];
    char text[640];
    struct gb_json_writer out = gb_json_fixed(text, sizeof(text));
    char head[640];
    char id[24];
    bool is_plain = why == GB_REFUSAL_PLAIN;
    int fd = handoff->fd;
    int status;
    int n;

    explain(server, why, handoff->local, detail, sizeof(detail));
    gb_error_set(&error, code_of(why), "%s", detail);
    snprintf(id, sizeof(id), "%016llx", (unsigned long long)gb_exchange_loop_id(&loop->exchanges));
    gb_problem_open(&out, &error, NULL, "", id);
    gb_json_close(&out, '}');
    gb_json_end(&out);
    status = gb_code_status(error.code);
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n" GB_EVERY_REPLY_LINES
                 "Cache-Control: no-store\r\n" GB_REPLY_ID ": %s\r\n%sConnection: close\r\nContent-Length: %zu\r\n\r\n",
                 status, gb_http_reason(status), id, is_plain ? "" : "Retry-After: 1\r\n", out.used);
    atomic_fetch_add(&server->refused, 1);
    if (why == GB_REFUSAL_SOURCE)
        atomic_fetch_add(&server->refused_source, 1);
    /* A fresh socket has room for this; the rest is not worth waiting for. Nor is a handshake. */
    if ((!handoff->secure || is_plain) && send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == n)
        (void)!send(fd, text, out.used, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    close(fd);
}

bool gb_refuse_or_squeeze(struct gb_loop *loop, const struct gb_handoff *handoff) {
    struct gb_http_server *server = loop->server;

    atomic_fetch_sub(&server->squeezed, 1);
    if (gb_fronts_give_way(loop) || gb_quiet_give_way(loop, handoff->local)) {
        atomic_fetch_add(&server->accepted, 1);
        return true;
    }
    gb_peer_end(handoff->peer);
    gb_conn_slot_end(&server->places, handoff->source);
    gb_refuse(loop, handoff, GB_REFUSAL_FULL);
    return false;
}
