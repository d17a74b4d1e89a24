/* libmicrohttpd asks for another turn while it has work left. If it can neither read nor answer a connection, that work
 * never ends: 0.9.75 has had such states, and the loop then takes a whole core. */
#include "http/mhd/watchdog.h"

#include <stdio.h>
#include <sys/socket.h>

/* Between two sweeps. A loop that works has few of these turns; a loop that spins has a hundred thousand. */
#define IDLE_TURNS_MAX 2000
#define FRUITLESS_MAX 1000

/* libmicrohttpd counts whole seconds. */
#define TIMEOUT_S 1

/* Whether libmicrohttpd leaves bytes, or the end, in the socket. */
static bool is_unread(const struct gb_conn *c) {
    char byte;

    return (!c->ex || !c->ex->suspended) && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void end_soon(const struct gb_loop *loop, struct gb_conn *c) {
    const struct gb_http_server_config *config = &loop->server->config;
    char text[160];

    snprintf(text, sizeof(text),
             "an HTTP loop turned %u times without progress; the %s connection that causes it is ended",
             loop->idle_turns, c->local ? "UNIX" : "TCP");
    if (config->stuck)
        config->stuck(config->app, text);
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)TIMEOUT_S);
}

void gb_mhd_watch_turns(struct gb_loop *loop) {
    bool spins = loop->idle_turns > IDLE_TURNS_MAX;
    struct gb_conn *c;

    for (c = loop->conns; c; c = c->next) {
        bool suspect = spins && !c->left && !c->handover && (c->fruitless > FRUITLESS_MAX || is_unread(c));

        /* The bytes may have come just now: the second check decides. */
        if (suspect && c->suspect)
            end_soon(loop, c);
        c->suspect = suspect;
        c->fruitless = 0;
    }
    loop->idle_turns = 0;
}
