#include "http/tls/context.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/tls/internal.h"

/* Suites with authenticated encryption and forward secrecy alone. The first that a client knows is taken in our order,
 * and AES with 128 bits is the fastest where processors have instructions for it. Of groups X25519 comes first: OpenSSL
 * before 3.5 sends a key for that one alone, and any other would cost its client a second hello and a round trip.
 * Finite fields are left out: one of 8192 bits costs 290 times as much as X25519, and its client computes nothing. */
#define PRIORITY                                                                                                       \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:-RSA:"        \
    "-DHE-RSA:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:+GROUP-SECP521R1:%SERVER_PRECEDENCE"

static int fail(int r, const char *call, struct gb_error *err) {
    gb_error_native(err, "gnutls", r, gnutls_strerror_name(r), call);
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: %s", call, gnutls_strerror(r));
}

static int unreadable(const char *file, const char *what, int r, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: %s (%s)", file, what, gnutls_strerror(r));
}

/* GnuTLS does not say why a file cannot be read. */
static int check_readable(const char *file, const char *what, struct gb_error *err) {
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    int code = fd < 0 ? errno : 0;

    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        code = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (fd >= 0)
        close(fd);
    if (code == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: %s cannot be read (%s)", file, what,
                        code == EINVAL ? "it is no file" : strerror(code));
}

/* --- certificates ------------------------------------------------------------------------------------------------- */

struct chain {
    gnutls_x509_crt_t *certs;
    unsigned count;
};

static void free_chain(struct chain *chain) {
    unsigned i;

    for (i = 0; i < chain->count; i++)
        gnutls_x509_crt_deinit(chain->certs[i]);
    gnutls_free(chain->certs);
    *chain = (struct chain){.certs = NULL};
}

static int read_chain(const char *file, struct chain *ret, struct gb_error *err) {
    gnutls_datum_t text = {.data = NULL};
    int r;

    *ret = (struct chain){.certs = NULL};
    if (check_readable(file, "the certificate", err) < 0)
        return -1;
    r = gnutls_load_file(file, &text);
    if (r < 0)
        return unreadable(file, "the certificate cannot be read", r, err);
    r = gnutls_x509_crt_list_import2(&ret->certs, &ret->count, &text, GNUTLS_X509_FMT_PEM,
                                     GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    gnutls_free(text.data);
    if (r == GNUTLS_E_CERTIFICATE_LIST_UNSORTED)
        return gb_error_set(
            err, GB_ERR_INTERNAL,
            "%s: the certificates are not in order; the server's comes first, each is followed by that of "
            "its signer",
            file);
    if (r < 0 || ret->count == 0)
        return unreadable(file, "there is no certificate in PEM", r, err);
    return 0;
}

/* A key that all users of the machine may read is no secret. */
static int check_mode(const char *file, struct gb_error *err) {
    struct stat st;

    if (stat(file, &st) == 0 && (st.st_mode & S_IRWXO) != 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "%s: other users may read or write the key (mode %04o); chmod 640 it",
                            file, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int read_key(const char *file, gnutls_x509_privkey_t *ret, struct gb_error *err) {
    gnutls_datum_t text = {.data = NULL};
    int r;

    *ret = NULL;
    if (check_readable(file, "the key", err) < 0 || check_mode(file, err) < 0)
        return -1;
    r = gnutls_load_file(file, &text);
    if (r < 0)
        return unreadable(file, "the key cannot be read", r, err);
    r = gnutls_x509_privkey_init(ret);
    if (r == 0)
        r = gnutls_x509_privkey_import2(*ret, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    return r < 0 ? unreadable(file, "there is no key in PEM without a password", r, err) : 0;
}

static int use_pair(gnutls_certificate_credentials_t credentials, const struct gb_tls_pair *pair,
                    const struct chain *chain, gnutls_x509_privkey_t key, struct gb_error *err) {
    int r = gnutls_certificate_set_x509_key(credentials, chain->certs, (int)chain->count, key);

    if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return gb_error_set(err, GB_ERR_INTERNAL, "%s: the key is not that of the first certificate of %s", pair->key,
                            pair->cert);
    return r < 0 ? unreadable(pair->cert, "the certificate cannot be used", r, err) : 0;
}

/* To those of all, and for itself. */
static int keep_pair(struct gb_tls_context *context, const struct gb_tls_pair *pair, const struct chain *chain,
                     gnutls_x509_privkey_t key, struct gb_error *err) {
    struct gb_tls_named *named;
    int r;

    context->expiry_s[context->pair_count++] = gnutls_x509_crt_get_expiration_time(chain->certs[0]);
    if (use_pair(context->credentials, pair, chain, key, err) < 0)
        return -1;
    if (gb_tls_add_names(context, chain->certs[0]) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (!context->named)
        return 0;
    named = &context->named[context->named_count];
    r = gnutls_certificate_allocate_credentials(&named->credentials);
    if (r < 0)
        return fail(r, "gnutls_certificate_allocate_credentials", err);
    context->named_count++;
    if (use_pair(named->credentials, pair, chain, key, err) < 0)
        return -1;
    named->cert = chain->certs[0];
    chain->certs[0] = NULL;
    return 0;
}

/* Clients refuse a server that shows a certificate that is for something else. */
static int check_purpose(const char *file, gnutls_x509_crt_t cert, struct gb_error *err) {
    if (gnutls_x509_crt_check_key_purpose(cert, GNUTLS_KP_TLS_WWW_SERVER, 0) != 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_INTERNAL,
        "%s: the certificate is not for servers (%s), and clients refuse it: give one for servers, such "
        "as \"gpubufd tls init\" and \"gpubufd tls server\" make",
        file,
        gnutls_x509_crt_check_key_purpose(cert, GNUTLS_KP_TLS_WWW_CLIENT, 0) != 0 ? "it is for clients"
                                                                                  : "by its extended key usage");
}

static int add_pair(struct gb_tls_context *context, const struct gb_tls_pair *pair, struct gb_error *err) {
    gnutls_x509_privkey_t key = NULL;
    struct chain chain;
    int r = -1;

    if (read_chain(pair->cert, &chain, err) == 0 && check_purpose(pair->cert, chain.certs[0], err) == 0 &&
        read_key(pair->key, &key, err) == 0)
        r = keep_pair(context, pair, &chain, key, err);
    gnutls_x509_privkey_deinit(key);
    free_chain(&chain);
    return r;
}

static int add_client_ca(gnutls_certificate_credentials_t credentials, const char *file, struct gb_error *err) {
    int r = gnutls_certificate_set_x509_trust_file(credentials, file, GNUTLS_X509_FMT_PEM);

    return r > 0 ? 0 : unreadable(file, "there is no certificate of an authority in PEM", r, err);
}

static int ask_clients(struct gb_tls_context *context, const char *file, struct gb_error *err) {
    size_t i;

    if (check_readable(file, "the authority of clients", err) < 0 || add_client_ca(context->credentials, file, err) < 0)
        return -1;
    for (i = 0; i < context->named_count; i++) {
        if (add_client_ca(context->named[i].credentials, file, err) < 0)
            return -1;
    }
    context->asks_clients = true;
    return 0;
}

/* --- the context -------------------------------------------------------------------------------------------------- */

static void free_context(struct gb_tls_context *context) {
    size_t i;

    for (i = 0; i < context->named_count; i++) {
        gnutls_x509_crt_deinit(context->named[i].cert);
        gnutls_certificate_free_credentials(context->named[i].credentials);
    }
    free(context->named);
    free(context->expiry_s);
    for (i = 0; i < context->names.count; i++)
        free(context->names.name[i]);
    free(context->names.name);
    if (context->credentials)
        gnutls_certificate_free_credentials(context->credentials);
    if (context->priority)
        gnutls_priority_deinit(context->priority);
    if (context->ticket_key.data)
        gnutls_memset(context->ticket_key.data, 0, context->ticket_key.size);
    gnutls_free(context->ticket_key.data);
    free(context);
}

static int fill(struct gb_tls_context *context, const struct gb_tls_config *config, struct gb_error *err) {
    size_t i;
    int r = gnutls_certificate_allocate_credentials(&context->credentials);

    if (r < 0)
        return fail(r, "gnutls_certificate_allocate_credentials", err);
    r = gnutls_priority_init(&context->priority, PRIORITY, NULL);
    if (r < 0)
        return fail(r, "gnutls_priority_init", err);
    r = gnutls_session_ticket_key_generate(&context->ticket_key);
    if (r < 0)
        return fail(r, "gnutls_session_ticket_key_generate", err);
    context->expiry_s = calloc(config->pair_count + 1, sizeof(*context->expiry_s));
    if (!context->expiry_s)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (config->pair_count > 1) {
        context->named = calloc(config->pair_count, sizeof(*context->named));
        if (!context->named)
            return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    for (i = 0; i < config->pair_count; i++) {
        if (add_pair(context, &config->pairs[i], err) < 0)
            return -1;
    }
    return config->client_ca ? ask_clients(context, config->client_ca, err) : 0;
}

int gb_tls_context_new(const struct gb_tls_config *config, struct gb_tls_context **ret, struct gb_error *err) {
    struct gb_tls_context *context = calloc(1, sizeof(*context));

    if (!context)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    atomic_init(&context->refs, 1);
    if (fill(context, config, err) < 0) {
        free_context(context);
        return -1;
    }
    *ret = context;
    return 0;
}

struct gb_tls_context *gb_tls_context_ref(struct gb_tls_context *context) {
    atomic_fetch_add(&context->refs, 1);
    return context;
}

void gb_tls_context_unref(struct gb_tls_context *context) {
    if (context && atomic_fetch_sub(&context->refs, 1) == 1)
        free_context(context);
}

const struct gb_http_names *gb_tls_context_names(const struct gb_tls_context *context) {
    return &context->names;
}

int64_t gb_tls_context_expiry(const struct gb_tls_context *context, size_t pair) {
    return context->expiry_s[pair];
}
