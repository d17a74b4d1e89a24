/* One connection over TLS, from its handshake to its end.
 *
 * The functions stand beside recv and send and behave as they do on a socket that does not block: -1 with EAGAIN means
 * that an event of the socket comes first. Bytes go from GnuTLS's record straight to the caller's room. One thread at a
 * time uses a connection. */
#ifndef GB_HTTP_TLS_TLS_H
#define GB_HTTP_TLS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/error.h"
#include "http/http.h"
#include "http/tls/context.h"

struct gb_tls;

/* fd is borrowed. Takes a reference to the context. NULL when memory is exhausted. */
struct gb_tls *gb_tls_new(struct gb_tls_context *context, int fd);
void gb_tls_free(struct gb_tls *tls); /* NULL is accepted */

enum gb_tls_step {
    GB_TLS_DONE,
    GB_TLS_WANTS_READ,  /* an event that the socket has bytes comes first */
    GB_TLS_WANTS_WRITE, /* that it has room; or it has, and other connections go first */
    GB_TLS_FAILED
};
/* Continues with the handshake, and checks the client's certificate at its end. FAILED: the client has the reason. */
enum gb_tls_step gb_tls_handshake(struct gb_tls *tls);

/* What the client has shown; NULL: no certificate. A reference, which gb_tls_certificate_unref gives back. */
const struct gb_http_certificate *gb_tls_certificate_ref(struct gb_tls *tls); /* NULL is accepted */

/* Whether the client's certificate, if there is one, was verified by the authorities of that context, and that it is
 * from now on: a certificate that they do not know is distrusted. */
bool gb_tls_is_verified(const struct gb_tls *tls, const struct gb_tls_context *context);
void gb_tls_verify(struct gb_tls *tls, struct gb_tls_context *context);

/* What the server's certificates are for. NULL for NULL. */
const struct gb_http_names *gb_tls_names(const struct gb_tls *tls);

/* The socket has had an event. */
void gb_tls_woken(struct gb_tls *tls);

/* As many bytes as are there, up to n. 0: the client has closed its side. */
ssize_t gb_tls_recv(struct gb_tls *tls, void *room, size_t n);
/* The same, and they stay to be read again. */
ssize_t gb_tls_peek(struct gb_tls *tls, void *room, size_t n);
/* Bytes that were taken out and are to be read again, before all others. Returns 0; -1: memory is exhausted. */
int gb_tls_unread(struct gb_tls *tls, const void *bytes, size_t n);
/* Whether bytes, the end or an error are there, for which the socket has no event. */
bool gb_tls_pending(struct gb_tls *tls);

/* Returns the bytes that have left; those that follow must be given again in the next call. more: others come soon. */
ssize_t gb_tls_send(struct gb_tls *tls, const void *bytes, size_t n, bool more);

/* Whether a part of the bytes that must be given again has left. */
bool gb_tls_is_sending(const struct gb_tls *tls);

/* Bytes that leave before all that is sent. Those which must be given again come here first, if there are any. If
 * memory is exhausted the connection is broken. */
void gb_tls_queue(struct gb_tls *tls, const void *bytes, size_t n);
/* Sends them as far as the socket takes them. Returns 0: all have left; -1 as gb_tls_send. */
int gb_tls_flush(struct gb_tls *tls);

/* Tells the client that nothing follows, if the socket takes that at once. */
void gb_tls_end(struct gb_tls *tls);

/* --- of a connection that may be plain ---------------------------------------------------------------------------- */

static inline ssize_t gb_wire_recv(int fd, struct gb_tls *tls, void *room, size_t n) {
    return tls ? gb_tls_recv(tls, room, n) : recv(fd, room, n, MSG_DONTWAIT);
}

static inline ssize_t gb_wire_peek(int fd, struct gb_tls *tls, void *room, size_t n) {
    return tls ? gb_tls_peek(tls, room, n) : recv(fd, room, n, MSG_PEEK | MSG_DONTWAIT);
}

static inline ssize_t gb_wire_send(int fd, struct gb_tls *tls, const void *bytes, size_t n, bool more) {
    return tls ? gb_tls_send(tls, bytes, n, more)
               : send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
}

#endif
