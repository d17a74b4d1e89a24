/* A connection over a socket pair: at one end src/http/tls, at the other a client of GnuTLS. What the client sends is
 * kept, and the test decides which bytes of it arrive when. */
#ifndef GB_TLS_PAIR_H
#define GB_TLS_PAIR_H

#include <gnutls/gnutls.h>

#include "http/tls/tls.h"
#include "tls_files.h"

struct gb_tls_pair_of {
    struct gb_tls *server;
    gnutls_session_t client;
    gnutls_certificate_credentials_t credentials;
    enum gb_tls_step step; /* the server's last */
    int status;            /* the client's last */
    int alert;             /* that the client has got; -1: none */
    int fd;                /* the server's end */
    int other;             /* the client's end */
    char *wire;            /* the client has sent it, and it has not arrived */
    size_t len;
    size_t size;
};

struct gb_tls_client {
    const char *priority; /* NULL: NORMAL */
    const char *cert;     /* a file; NULL: none */
    const char *key;
    const char *name; /* the server's, to be asked for */
    const char *alpn;
    const gnutls_datum_t *session; /* to be resumed */
    size_t record_limit;           /* 0: none is asked for */
};

/* Both ends, before the handshake. client (NULL: all as usual) stays until its end. */
void gb_tls_pair_init(struct gb_tls_pair_of *p, struct gb_tls_context *context, const struct gb_tls_client *client);
void gb_tls_pair_done(struct gb_tls_pair_of *p);

/* Both ends continue until neither can: p->step and p->status say how it ended. */
void gb_tls_pair_shake(struct gb_tls_pair_of *p);
/* Both, and the handshake has succeeded. */
void gb_tls_pair_open(struct gb_tls_pair_of *p, struct gb_tls_context *context, const struct gb_tls_client *client);

/* n of the bytes that the client has sent arrive, and the server's socket has an event; or all of them. */
void gb_tls_arrive(struct gb_tls_pair_of *p, size_t n);
void gb_tls_arrive_all(struct gb_tls_pair_of *p);

/* The client sends n bytes: byte i is gb_tls_byte(from + i). In records of `size` each. */
void gb_tls_client_sends(struct gb_tls_pair_of *p, size_t from, size_t n, size_t size);
unsigned char gb_tls_byte(size_t i);
bool gb_tls_bytes_are(const void *bytes, size_t from, size_t n);

/* The server's end of what a client reads: -1 with EAGAIN, or bytes. */
ssize_t gb_tls_client_reads(struct gb_tls_pair_of *p, void *room, size_t n);

#endif
