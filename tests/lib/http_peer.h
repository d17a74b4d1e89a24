/* The server of http_fixture.h on a UNIX socket, with an application that holds something for connections. */
#ifndef GB_HTTP_PEER_FIXTURE_H
#define GB_HTTP_PEER_FIXTURE_H

#include <pthread.h>

#include "http_fixture.h"

/* Besides the fixture's routes: POST /fd?{one,four,five,later,fail} (holds the connection and gives that many
 * descriptors of a file with "bytes" in it; later: after a wait; fail: answers with an error instead), GET /park (waits
 * for ever), GET /slow/x (as /b/x, each piece after a wake; ?never: none comes), PUT /blocked (there is never room). A
 * held connection is always busy; idle ones are closed after a second. */
struct gb_http_peers {
    struct gb_http_fixture f;
    char path[64];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned gone; /* under the lock, while the server runs */
    unsigned freed;
    /* Set before the start, if there are more: */
    struct gb_closer *closer;
    const struct gb_http_route *more;
    size_t more_count;
};

void gb_http_peers_start(struct gb_http_peers *p);
void gb_http_peers_stop(struct gb_http_peers *p);

/* Waits until that count, gone or freed, is at least n. */
void gb_await(struct gb_http_peers *p, const unsigned *count, unsigned n);

int gb_local_client(const struct gb_http_peers *p);
/* Sends a request for descriptors, and checks that n right ones come with 103, and then the answer. */
void gb_local_take(int fd, const char *request, unsigned n);
/* Takes the descriptors of the next answer, at most max. Returns their number; 0: it is no interim response. */
unsigned gb_local_fds(int fd, int *ret, unsigned max);
unsigned gb_open_files(void);

/* Two connected TCP sockets, of which the second reads nothing. */
void gb_lingering(int ret[2]);

#endif
