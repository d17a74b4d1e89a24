#include "http/tls/certificate.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"
#include "http/tls/tls.h"

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

/* GnuTLS checks the client's signature with the client's own key before any authority is asked, and on a loop that
 * others wait for: an exponent as long as a modulus of 57344 bits takes it minutes. */
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
