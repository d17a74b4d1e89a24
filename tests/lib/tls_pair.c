#include "tls_pair.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t client_push(gnutls_transport_ptr_t ptr, const void *bytes, size_t n) {
    struct gb_tls_pair_of *p = ptr;

    if (p->len + n > p->size) {
        p->size = (p->len + n) * 2;
        p->wire = realloc(p->wire, p->size);
        ck_assert_ptr_nonnull(p->wire);
    }
    memcpy(p->wire + p->len, bytes, n);
    p->len += n;
    return (ssize_t)n;
}

static ssize_t client_pull(gnutls_transport_ptr_t ptr, void *room, size_t n) {
    struct gb_tls_pair_of *p = ptr;
    ssize_t got = recv(p->other, room, n, MSG_DONTWAIT);

    if (got < 0)
        gnutls_transport_set_errno(p->client, errno);
    return got;
}

static int client_waits(gnutls_transport_ptr_t ptr, unsigned ms) {
    (void)ptr;
    (void)ms;
    return 1;
}

/* The client shows its certificate, whichever authorities the server has named. */
static int client_shows(gnutls_session_t session, const gnutls_datum_t *names, int count,
                        const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_retr2_st *st) {
    const struct gb_tls_client *client = gnutls_session_get_ptr(session);
    gnutls_datum_t text;

    (void)names;
    (void)count;
    (void)algorithms;
    (void)algorithm_count;
    *st =
        (gnutls_retr2_st){.cert_type = GNUTLS_CRT_X509, .key_type = GNUTLS_PRIVKEY_X509, .ncerts = 1, .deinit_all = 1};
    ck_assert_int_eq(gnutls_load_file(client->cert, &text), 0);
    st->cert.x509 = gnutls_malloc(sizeof(gnutls_x509_crt_t));
    ck_assert_int_eq(gnutls_x509_crt_init(st->cert.x509), 0);
    ck_assert_int_eq(gnutls_x509_crt_import(st->cert.x509[0], &text, GNUTLS_X509_FMT_PEM), 0);
    gnutls_free(text.data);
    ck_assert_int_eq(gnutls_load_file(client->key, &text), 0);
    ck_assert_int_eq(gnutls_x509_privkey_init(&st->key.x509), 0);
    ck_assert_int_eq(gnutls_x509_privkey_import(st->key.x509, &text, GNUTLS_X509_FMT_PEM), 0);
    gnutls_free(text.data);
    return 0;
}

static void set_up_client(struct gb_tls_pair_of *p, const struct gb_tls_client *client) {
    static const struct gb_tls_client plain = {.priority = NULL};
    gnutls_datum_t alpn;

    client = client ? client : &plain;
    ck_assert_int_eq(gnutls_certificate_allocate_credentials(&p->credentials), 0);
    if (client->cert)
        gnutls_certificate_set_retrieve_function(p->credentials, client_shows);
    ck_assert_int_eq(gnutls_init(&p->client, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
    gnutls_session_set_ptr(p->client, (void *)(uintptr_t)client);
    ck_assert_int_eq(
        gnutls_priority_set_direct(p->client, client->priority ? client->priority : "NORMAL:+VERS-TLS-ALL", NULL), 0);
    ck_assert_int_eq(gnutls_credentials_set(p->client, GNUTLS_CRD_CERTIFICATE, p->credentials), 0);
    gnutls_handshake_set_timeout(p->client, GNUTLS_INDEFINITE_TIMEOUT);
    if (client->name)
        gnutls_server_name_set(p->client, GNUTLS_NAME_DNS, client->name, strlen(client->name));
    if (client->alpn) {
        alpn = (gnutls_datum_t){(unsigned char *)(uintptr_t)client->alpn, (unsigned)strlen(client->alpn)};
        ck_assert_int_eq(gnutls_alpn_set_protocols(p->client, &alpn, 1, 0), 0);
    }
    if (client->session)
        ck_assert_int_eq(gnutls_session_set_data(p->client, client->session->data, client->session->size), 0);
    if (client->record_limit)
        ck_assert_int_ge(gnutls_record_set_max_recv_size(p->client, client->record_limit), 0);
    gnutls_transport_set_ptr(p->client, p);
    gnutls_transport_set_push_function(p->client, client_push);
    gnutls_transport_set_pull_function(p->client, client_pull);
    gnutls_transport_set_pull_timeout_function(p->client, client_waits);
}

void gb_tls_pair_init(struct gb_tls_pair_of *p, struct gb_tls_context *context, const struct gb_tls_client *client) {
    int fd[2];

    *p = (struct gb_tls_pair_of){.alert = -1};
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    p->fd = fd[0];
    p->other = fd[1];
    p->server = gb_tls_new(context, p->fd);
    ck_assert_ptr_nonnull(p->server);
    set_up_client(p, client);
}

void gb_tls_pair_done(struct gb_tls_pair_of *p) {
    gb_tls_free(p->server);
    gnutls_deinit(p->client);
    gnutls_certificate_free_credentials(p->credentials);
    if (p->fd >= 0)
        close(p->fd);
    if (p->other >= 0)
        close(p->other);
    free(p->wire);
}

/* --- the wire ----------------------------------------------------------------------------------------------------- */

void gb_tls_arrive(struct gb_tls_pair_of *p, size_t n) {
    ck_assert_uint_le(n, p->len);
    ck_assert_int_eq(send(p->other, p->wire, n, MSG_NOSIGNAL | MSG_DONTWAIT), (ssize_t)n);
    memmove(p->wire, p->wire + n, p->len - n);
    p->len -= n;
    gb_tls_woken(p->server);
}

void gb_tls_arrive_all(struct gb_tls_pair_of *p) {
    gb_tls_arrive(p, p->len);
}

static void note_alert(struct gb_tls_pair_of *p, int r) {
    if (r == GNUTLS_E_FATAL_ALERT_RECEIVED || r == GNUTLS_E_WARNING_ALERT_RECEIVED)
        p->alert = (int)gnutls_alert_get(p->client);
}

void gb_tls_pair_shake(struct gb_tls_pair_of *p) {
    int i;

    p->step = GB_TLS_WANTS_READ;
    p->status = GNUTLS_E_AGAIN;
    for (i = 0; i < 10; i++) {
        if (p->status == GNUTLS_E_AGAIN)
            p->status = gnutls_handshake(p->client);
        note_alert(p, p->status);
        if (p->len > 0)
            gb_tls_arrive_all(p);
        if (p->step == GB_TLS_WANTS_READ || p->step == GB_TLS_WANTS_WRITE)
            p->step = gb_tls_handshake(p->server);
    }
}

void gb_tls_pair_open(struct gb_tls_pair_of *p, struct gb_tls_context *context, const struct gb_tls_client *client) {
    gb_tls_pair_init(p, context, client);
    gb_tls_pair_shake(p);
    ck_assert_int_eq(p->step, GB_TLS_DONE);
    ck_assert_msg(p->status == 0, "%s", gnutls_strerror(p->status));
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

unsigned char gb_tls_byte(size_t i) {
    return (unsigned char)(i * 2654435761u >> 11);
}

bool gb_tls_bytes_are(const void *bytes, size_t from, size_t n) {
    const unsigned char *at = bytes;
    size_t i;

    for (i = 0; i < n; i++) {
        if (at[i] != gb_tls_byte(from + i))
            return false;
    }
    return true;
}

void gb_tls_client_sends(struct gb_tls_pair_of *p, size_t from, size_t n, size_t size) {
    unsigned char record[16384];
    size_t at;
    size_t i;

    for (at = 0; at < n; at += size) {
        size_t len = n - at < size ? n - at : size;

        for (i = 0; i < len; i++)
            record[i] = gb_tls_byte(from + at + i);
        ck_assert_int_eq(gnutls_record_send(p->client, record, len), (ssize_t)len);
    }
}

ssize_t gb_tls_client_reads(struct gb_tls_pair_of *p, void *room, size_t n) {
    char byte;
    ssize_t r;

    do /* a ticket, or a new key, is no data */
        r = gnutls_record_recv(p->client, room, n);
    while (r == GNUTLS_E_INTERRUPTED ||
           (r == GNUTLS_E_AGAIN && recv(p->other, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1));
    note_alert(p, (int)r);
    return r;
}
