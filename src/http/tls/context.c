/* Certificates and keys, and the contexts that they make: read again when asked, old ones kept as long as connections
 * need them. */
#include "http/tls/context.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"

/* --- name --------------------------------------------------------------------------------------------------------- */

/* The names of certificates, and which certificate is that of the name that a client asks for. */

#define NAME_SIZE 256

static const struct gb_tls_named *find(const struct gb_tls_context *context, const char *name, unsigned flags) {
    size_t i;

    for (i = 0; i < context->named_count; i++) {
        if (gnutls_x509_crt_check_hostname2(context->named[i].cert, name, flags))
            return &context->named[i];
    }
    return NULL;
}

static int name_add_name(struct gb_http_names *names, const char *bytes, size_t n) {
    char **more = realloc(names->name, (names->count + 1) * sizeof(*more));

    if (!more)
        return -1;
    names->name = more;
    names->name[names->count] = strndup(bytes, n);
    if (!names->name[names->count])
        return -1;
    names->count++;
    return 0;
}

/* Adds the DNS names of the certificate. Returns 0, or -1 if memory is exhausted. */
static int tls_add_names(struct gb_tls_context *context, gnutls_x509_crt_t cert) {
    char name[NAME_SIZE];
    unsigned i;
    int type = 0;

    /* A name that finds no room is longer than DNS permits. */
    for (i = 0; type >= 0 || type == GNUTLS_E_SHORT_MEMORY_BUFFER; i++) {
        size_t n = sizeof(name);

        type = gnutls_x509_crt_get_subject_alt_name(cert, i, name, &n, NULL);
        if (type == GNUTLS_SAN_DNSNAME && name_add_name(&context->names, name, n) < 0)
            return -1;
    }
    return 0;
}

int gb_tls_choose_name(gnutls_session_t session, const struct gb_tls_context *context) {
    const struct gb_tls_named *named;
    char name[NAME_SIZE];
    size_t n = sizeof(name);
    unsigned type;

    if (gnutls_server_name_get(session, name, &n, &type, 0) < 0 || type != GNUTLS_NAME_DNS)
        return 0;
    /* Several may have the name, with keys of different kinds, of which the client may know one alone. */
    if (find(context, name, GNUTLS_VERIFY_DO_NOT_ALLOW_WILDCARDS))
        return 0;
    named = find(context, name, 0);
    if (named)
        (void)gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, named->credentials);
    return 0;
}

/* --- context ------------------------------------------------------------------------------------------------------ */

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

static int use_pair(gnutls_certificate_credentials_t credentials, const struct gb_tls_pair_files *pair,
                    const struct chain *chain, gnutls_x509_privkey_t key, struct gb_error *err) {
    int r = gnutls_certificate_set_x509_key(credentials, chain->certs, (int)chain->count, key);

    if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return gb_error_set(err, GB_ERR_INTERNAL, "%s: the key is not that of the first certificate of %s", pair->key,
                            pair->cert);
    return r < 0 ? unreadable(pair->cert, "the certificate cannot be used", r, err) : 0;
}

/* To those of all, and for itself. */
static int keep_pair(struct gb_tls_context *context, const struct gb_tls_pair_files *pair, const struct chain *chain,
                     gnutls_x509_privkey_t key, struct gb_error *err) {
    struct gb_tls_named *named;
    int r;

    context->expiry_s[context->pair_count++] = gnutls_x509_crt_get_expiration_time(chain->certs[0]);
    if (use_pair(context->credentials, pair, chain, key, err) < 0)
        return -1;
    if (tls_add_names(context, chain->certs[0]) < 0)
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

static int add_pair(struct gb_tls_context *context, const struct gb_tls_pair_files *pair, struct gb_error *err) {
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

/* --- certificate -------------------------------------------------------------------------------------------------- */

#define CHAIN_MAX 16
#define RSA_BITS_MAX 8192
#define MESSAGE_MAX (32 * 1024) /* of a handshake: a chain of certificates is the longest */

/* What a certificate must be good for. */
#define CLIENT                                                                                                         \
    { .type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, .size = 0 }

struct gb_tls_certificate {
    atomic_uint refs;
    struct gb_http_certificate seen;
};

const struct gb_http_certificate *gb_tls_certificate_take(struct gb_tls_certificate *certificate) {
    if (!certificate)
        return NULL;
    atomic_fetch_add(&certificate->refs, 1);
    return &certificate->seen;
}

void gb_tls_certificate_drop(struct gb_tls_certificate *certificate) {
    if (certificate && atomic_fetch_sub(&certificate->refs, 1) == 1)
        free(certificate);
}

void gb_tls_certificate_unref(const struct gb_http_certificate *certificate) {
    if (certificate)
        gb_tls_certificate_drop(gb_container_of(certificate, struct gb_tls_certificate, seen));
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* A name that does not fit, or holds a NUL, is left out: a part of it would be another name. */
static void add_name(struct gb_http_certificate *seen, unsigned type, const char *value, size_t n) {
    char *to = seen->name[seen->names];
    size_t size = sizeof(seen->name[0]);
    char address[INET6_ADDRSTRLEN];
    const char *word = NULL;
    int len = -1;

    if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16) &&
        inet_ntop(n == 4 ? AF_INET : AF_INET6, value, address, sizeof(address)))
        len = snprintf(to, size, "ip:%s", address);
    if (type == GNUTLS_SAN_DNSNAME)
        word = "dns";
    else if (type == GNUTLS_SAN_URI)
        word = "uri";
    else if (type == GNUTLS_SAN_RFC822NAME)
        word = "email";
    if (word && n < size && !memchr(value, '\0', n))
        len = snprintf(to, size, "%s:%.*s", word, (int)n, value);
    if (len > 0 && (size_t)len < size)
        seen->names++;
    else
        to[0] = '\0';
}

static void read_names(gnutls_x509_crt_t cert, struct gb_http_certificate *seen) {
    char value[sizeof(seen->name[0])];
    unsigned i;

    for (i = 0; seen->names < GB_HTTP_CERTIFICATE_NAMES; i++) {
        size_t n = sizeof(value) - 1;
        int type = gnutls_x509_crt_get_subject_alt_name(cert, i, value, &n, NULL);

        if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
            return;
        if (type >= 0)
            add_name(seen, (unsigned)type, value, n);
        else if (type != GNUTLS_E_SHORT_MEMORY_BUFFER)
            return;
    }
}

static void read_subject(gnutls_x509_crt_t cert, struct gb_http_certificate *seen) {
    gnutls_datum_t text = {.data = NULL};

    if (gnutls_x509_crt_get_dn3(cert, &text, 0) < 0)
        return;
    if (text.size < sizeof(seen->subject) && strlen((const char *)text.data) == text.size)
        memcpy(seen->subject, text.data, text.size);
    gnutls_free(text.data);
}

static void read_fingerprint(const gnutls_datum_t *der, struct gb_http_certificate *seen) {
    unsigned char hash[32];
    size_t size = sizeof(hash);
    char *to = stpcpy(seen->fingerprint, "sha256:");

    if (gnutls_fingerprint(GNUTLS_DIG_SHA256, der, hash, &size) < 0)
        size = 0;
    gb_hex(hash, size, to);
}

static struct gb_tls_certificate *read_first(const gnutls_datum_t *der) {
    struct gb_tls_certificate *certificate = calloc(1, sizeof(*certificate));
    gnutls_x509_crt_t cert = NULL;

    if (!certificate)
        return NULL;
    atomic_init(&certificate->refs, 1);
    if (gnutls_x509_crt_init(&cert) == 0 && gnutls_x509_crt_import(cert, der, GNUTLS_X509_FMT_DER) == 0) {
        certificate->seen.expires_s = gnutls_x509_crt_get_expiration_time(cert);
        read_subject(cert, &certificate->seen);
        read_names(cert, &certificate->seen);
        read_fingerprint(der, &certificate->seen);
    } else {
        free(certificate);
        certificate = NULL;
    }
    gnutls_x509_crt_deinit(cert);
    return certificate;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* GnuTLS checks the client's signature with the client's own key before any authority is asked, on a loop that others
 * wait for. With an exponent as long as a modulus of 57344 bits that takes minutes. */
static bool is_small(const gnutls_datum_t *exponent) {
    unsigned n = exponent->size;

    while (n > 0 && exponent->data[exponent->size - n] == 0)
        n--;
    return n <= 4;
}

static bool has_bearable_key(gnutls_x509_crt_t cert) {
    gnutls_datum_t modulus = {.data = NULL};
    gnutls_datum_t exponent = {.data = NULL};
    unsigned bits = 0;
    bool good;

    switch (gnutls_x509_crt_get_pk_algorithm(cert, &bits)) {
    case GNUTLS_PK_ECDSA:
    case GNUTLS_PK_EDDSA_ED25519:
    case GNUTLS_PK_EDDSA_ED448:
        return true;
    case GNUTLS_PK_RSA:
    case GNUTLS_PK_RSA_PSS:
        good = bits <= RSA_BITS_MAX && gnutls_x509_crt_get_pk_rsa_raw(cert, &modulus, &exponent) == 0 &&
               is_small(&exponent);
        gnutls_free(modulus.data);
        gnutls_free(exponent.data);
        return good;
    default:
        return false;
    }
}

static bool is_bearable(const gnutls_datum_t *der) {
    gnutls_x509_crt_t cert = NULL;
    bool good = gnutls_x509_crt_init(&cert) == 0 && gnutls_x509_crt_import(cert, der, GNUTLS_X509_FMT_DER) == 0 &&
                has_bearable_key(cert);

    gnutls_x509_crt_deinit(cert);
    return good;
}

/* The client's CertificateVerify has come. */
static int before_verify(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                         const gnutls_datum_t *message) {
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);
    unsigned i;

    (void)type;
    (void)when;
    (void)message;
    if (!incoming)
        return 0;
    if (!chain || count > CHAIN_MAX)
        return GNUTLS_E_CERTIFICATE_ERROR;
    for (i = 0; i < count; i++) {
        if (!is_bearable(&chain[i]))
            return GNUTLS_E_CERTIFICATE_ERROR;
    }
    return 0;
}

void gb_tls_certificate_guard(gnutls_session_t session) {
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_CERTIFICATE_VERIFY, GNUTLS_HOOK_PRE, before_verify);
    gnutls_handshake_set_max_packet_length(session, MESSAGE_MAX);
}

/* --- trust -------------------------------------------------------------------------------------------------------- */

static gnutls_alert_description_t reason_of(unsigned status) {
    if (status & (GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_SIGNER_NOT_CA))
        return GNUTLS_A_UNKNOWN_CA;
    if (status & GNUTLS_CERT_EXPIRED)
        return GNUTLS_A_CERTIFICATE_EXPIRED;
    if (status & GNUTLS_CERT_REVOKED)
        return GNUTLS_A_CERTIFICATE_REVOKED;
    if (status & GNUTLS_CERT_PURPOSE_MISMATCH)
        return GNUTLS_A_UNSUPPORTED_CERTIFICATE;
    return GNUTLS_A_BAD_CERTIFICATE;
}

/* As GnuTLS verifies the chain of a session, but by that list. */
static bool is_good(gnutls_x509_trust_list_t list, const gnutls_datum_t *chain, unsigned count) {
    gnutls_typed_vdata_st purpose = CLIENT;
    gnutls_x509_crt_t certs[CHAIN_MAX];
    unsigned status = 0;
    unsigned n;
    int r = 0;

    for (n = 0; n < count && n < CHAIN_MAX && r == 0; n++) {
        r = gnutls_x509_crt_init(&certs[n]);
        if (r < 0)
            break;
        r = gnutls_x509_crt_import(certs[n], &chain[n], GNUTLS_X509_FMT_DER);
    }
    if (r == 0 && n > 0)
        r = gnutls_x509_trust_list_verify_crt2(list, certs, n, &purpose, 1, 0, &status, NULL);
    while (n > 0)
        gnutls_x509_crt_deinit(certs[--n]);
    return r == 0 && status == 0 && count > 0;
}

void gb_tls_certificate_again(gnutls_session_t session, gnutls_certificate_credentials_t credentials,
                              struct gb_tls_certificate *certificate) {
    gnutls_x509_trust_list_t list = NULL;
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);

    gnutls_certificate_get_trust_list(credentials, &list);
    atomic_store(&certificate->seen.distrusted, !list || !chain || !is_good(list, chain, count));
}

int gb_http_certificate_check(const struct gb_http_certificate *certificate, struct gb_error *err) {
    char at[GB_RFC3339_SIZE];

    if (certificate->expires_s < (int64_t)time(NULL))
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED,
                            "the client's certificate expired at %s: connect anew with a new one",
                            gb_rfc3339(certificate->expires_s * 1000000, at));
    if (atomic_load(&certificate->distrusted))
        return gb_error_set(
            err, GB_ERR_UNAUTHENTICATED,
            "the authorities of clients (--tls-client-ca) have changed since this connection began, and "
            "its client's certificate is not by one of them: connect anew with another one");
    return 0;
}

int gb_tls_certificate_read(gnutls_session_t session, struct gb_tls_certificate **ret,
                            gnutls_alert_description_t *ret_why) {
    gnutls_typed_vdata_st purpose = CLIENT;
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);
    unsigned status = 0;

    *ret = NULL;
    if (!chain || count == 0)
        return 0;
    *ret_why = GNUTLS_A_BAD_CERTIFICATE;
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0)
        return -1;
    if (status != 0) {
        *ret_why = reason_of(status);
        return -1;
    }
    *ret_why = GNUTLS_A_INTERNAL_ERROR;
    *ret = read_first(&chain[0]);
    return *ret ? 0 : -1;
}

const char *gb_http_certificate_text(const struct gb_http_certificate *certificate) {
    if (certificate->subject[0])
        return certificate->subject;
    return certificate->names > 0 ? certificate->name[0] : certificate->fingerprint;
}
