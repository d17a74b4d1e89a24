/* Where the bytes of a body come from: those that libmicrohttpd had read behind the header, then the socket. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "http/server.h"

/* Framing that is looked at in one call: the end of a chunk and the beginning of the next are far shorter. */
#define PEEK_BYTES 128

static size_t early_left(const struct gb_exchange *ex) {
    return ex->early_len - ex->early_used;
}

ssize_t gb_transfer_read(struct gb_transfer *t, void *room, size_t n) {
    struct gb_exchange *ex = t->ex;

    if (early_left(ex) == 0)
        return recv(t->fd, room, n, MSG_DONTWAIT);
    if (n > early_left(ex))
        n = early_left(ex);
    memcpy(room, ex->early + ex->early_used, n);
    ex->early_used += n;
    return (ssize_t)n;
}

/* Bytes behind the framing stay in the socket: after the last chunk they are the next request. */
static ssize_t read_from_socket(struct gb_transfer *t, const char **ret_why) {
    char bytes[PEEK_BYTES];
    ssize_t n = recv(t->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);

    if (n <= 0)
        return n;
    n = gb_chunked_read(&t->ex->framing, bytes, (size_t)n, ret_why);
    return n > 0 ? recv(t->fd, bytes, (size_t)n, MSG_DONTWAIT) : n;
}

ssize_t gb_transfer_read_framing(struct gb_transfer *t, const char **ret_why) {
    struct gb_exchange *ex = t->ex;
    ssize_t n;

    if (early_left(ex) == 0)
        return read_from_socket(t, ret_why);
    n = gb_chunked_read(&ex->framing, ex->early + ex->early_used, early_left(ex), ret_why);
    if (n > 0)
        ex->early_used += (size_t)n;
    return n;
}
