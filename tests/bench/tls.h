/* TLS for the benchmark's programs, by GnuTLS: few system calls, no certificate is verified. */
#ifndef GB_BENCH_TLS_H
#define GB_BENCH_TLS_H

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* TLS 1.3 with AES-128-GCM and X25519: the same work on all sides. */
#define BENCH_TLS_PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:-GROUP-ALL:+GROUP-X25519"

struct bench_tls_side;
struct bench_tls;

/* Ends the program if the priority string or a file is wrong. A side serves all threads and is never freed. */
struct bench_tls_side *bench_tls_client(const char *priority);
struct bench_tls_side *bench_tls_server(const char *priority, const char *cert, const char *key);

/* Carries out the handshake on a socket that blocks; fd is borrowed. With a ticket of an earlier connection the client
 * resumes that one. NULL on failure: errno says why, EPROTO for what is TLS's. */
struct bench_tls *bench_tls_open(struct bench_tls_side *side, int fd, const gnutls_datum_t *ticket);
/* Says farewell, if the socket takes that at once. */
void bench_tls_close(struct bench_tls *tls);

/* Whether the handshake was a resumption. */
bool bench_tls_resumed(const struct bench_tls *tls);
/* Replaces *ticket by the last one that the server has sent, if there is one. */
void bench_tls_ticket(struct bench_tls *tls, gnutls_datum_t *ticket);

/* Encrypts all bytes. With more, what fits the buffer waits there for the next call. False: the connection ended, or
 * a socket that does not block has no room. */
bool bench_tls_send(struct bench_tls *tls, const void *data, size_t bytes, bool more);
/* As recv does. */
ssize_t bench_tls_recv(struct bench_tls *tls, void *room, size_t bytes);
/* Whether bytes are there for which the socket has no event. */
bool bench_tls_pending(const struct bench_tls *tls);

/* Writes cert.pem and key.pem of a new certificate for 127.0.0.1 (ECDSA, P-256) into a folder. */
void bench_tls_make_cert(const char *folder);

#endif
