#include "tls/pair.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "tls/inside.h"

#define SERIAL_BYTES 16
#define ID_BYTES 64
#define COMMON_NAME_MAX 64 /* RFC 5280's ub-common-name */
#define DAY_S 86400

int gb_tls_error(struct gb_error *err, const char *call, int number) {
    gb_error_native(err, "gnutls", number, gnutls_strerror_name(number), call);
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: %s", call, gnutls_strerror(number));
}

struct gb_tls_pair *gb_tls_pair_new(struct gb_error *err) {
    struct gb_tls_pair *pair = calloc(1, sizeof(*pair));

    if (pair == NULL || gnutls_x509_crt_init(&pair->crt) < 0 || gnutls_x509_privkey_init(&pair->key) < 0) {
        gb_tls_pair_free(pair);
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    return pair;
}

void gb_tls_pair_free(struct gb_tls_pair *pair) {
    if (pair == NULL)
        return;
    if (pair->crt != NULL)
        gnutls_x509_crt_deinit(pair->crt);
    if (pair->key != NULL)
        gnutls_x509_privkey_deinit(pair->key);
    free(pair);
}

int64_t gb_tls_pair_until(const struct gb_tls_pair *pair) {
    return (int64_t)gnutls_x509_crt_get_expiration_time(pair->crt);
}

/* --- what a certificate says -------------------------------------------------------------------------------------- */

/* Random, positive and never 0. */
static int set_serial(gnutls_x509_crt_t crt, struct gb_error *err) {
    unsigned char serial[SERIAL_BYTES];
    int rc;

    if (gb_random(serial, sizeof(serial), err) != 0)
        return -1;
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40);
    rc = gnutls_x509_crt_set_serial(crt, serial, sizeof(serial));
    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_set_serial", rc) : 0;
}

static int set_subject(gnutls_x509_crt_t crt, const char *common_name, struct gb_error *err) {
    size_t n = strnlen(common_name, COMMON_NAME_MAX);
    int rc = gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, common_name, (unsigned)n);

    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_set_dn_by_oid", rc) : 0;
}

static int set_times(gnutls_x509_crt_t crt, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                     struct gb_error *err) {
    int64_t from = plan->now_s - GB_TLS_SLACK_S;
    int64_t until = from + (int64_t)plan->days * DAY_S - 1; /* the last second counts (RFC 5280, 4.1.2.5) */
    int rc;

    if (authority != NULL && until > gb_tls_pair_until(authority))
        until = gb_tls_pair_until(authority);
    if (authority != NULL && from < (int64_t)gnutls_x509_crt_get_activation_time(authority->crt))
        from = (int64_t)gnutls_x509_crt_get_activation_time(authority->crt);
    rc = gnutls_x509_crt_set_activation_time(crt, (time_t)from);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_expiration_time(crt, (time_t)until);
    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_set_expiration_time", rc) : 0;
}

static int set_names(gnutls_x509_crt_t crt, const struct gb_tls_names *names, struct gb_error *err) {
    size_t i;

    for (i = 0; names != NULL && i < names->count; i++) {
        const struct gb_tls_name *name = &names->items[i];
        bool host = name->address_bytes == 0;
        int rc = gnutls_x509_crt_set_subject_alt_name(
            crt, host ? GNUTLS_SAN_DNSNAME : GNUTLS_SAN_IPADDRESS, host ? (const void *)name->text : name->address,
            (unsigned)(host ? strlen(name->text) : name->address_bytes), GNUTLS_FSAN_APPEND);

        if (rc < 0)
            return gb_tls_error(err, "gnutls_x509_crt_set_subject_alt_name", rc);
    }
    return 0;
}

/* An authority signs certificates and no other authority; the others do what they are for and nothing else. */
static int set_uses(gnutls_x509_crt_t crt, enum gb_tls_role role, struct gb_error *err) {
    bool authority = role == GB_TLS_AUTHORITY;
    int rc = gnutls_x509_crt_set_basic_constraints(crt, authority, authority ? 0 : -1);

    if (rc >= 0)
        rc = gnutls_x509_crt_set_key_usage(crt, authority ? GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN
                                                          : GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (rc >= 0 && !authority)
        rc = gnutls_x509_crt_set_key_purpose_oid(
            crt, role == GB_TLS_SERVER ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT, 0);
    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_set_key_usage", rc) : 0;
}

/* The key's own id, and that of the key that signs. */
static int set_ids(gnutls_x509_crt_t crt, const struct gb_tls_pair *signer, struct gb_error *err) {
    unsigned char own[ID_BYTES];
    unsigned char theirs[ID_BYTES];
    size_t own_bytes = sizeof(own);
    size_t their_bytes = sizeof(theirs);
    int rc = gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA1, own, &own_bytes);

    if (rc >= 0)
        rc = gnutls_x509_crt_set_subject_key_id(crt, own, own_bytes);
    if (rc >= 0)
        rc = gnutls_x509_crt_get_subject_key_id(signer->crt, theirs, &their_bytes, NULL);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_authority_key_id(crt, theirs, their_bytes);
    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_set_authority_key_id", rc) : 0;
}

/* --- signing ------------------------------------------------------------------------------------------------------ */

static int check_authority(const struct gb_tls_pair *authority, int64_t now_s, struct gb_error *err) {
    unsigned is_authority = 0;

    if (gnutls_x509_crt_get_basic_constraints(authority->crt, NULL, &is_authority, NULL) < 0 || is_authority == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the certificate that is to sign is no authority's");
    if (gb_tls_pair_until(authority) <= now_s)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the authority's certificate has expired: make a new one in another folder");
    return 0;
}

/* GnuTLS tells names only of a certificate that it read. */
static int read_again(struct gb_tls_pair *pair, struct gb_error *err) {
    gnutls_datum_t der = {NULL, 0};
    gnutls_x509_crt_t crt = NULL;
    int rc = gnutls_x509_crt_export2(pair->crt, GNUTLS_X509_FMT_DER, &der);

    if (rc >= 0)
        rc = gnutls_x509_crt_init(&crt);
    if (rc >= 0)
        rc = gnutls_x509_crt_import(crt, &der, GNUTLS_X509_FMT_DER);
    gnutls_free(der.data);
    if (rc < 0) {
        if (crt != NULL)
            gnutls_x509_crt_deinit(crt);
        return gb_tls_error(err, "gnutls_x509_crt_import", rc);
    }
    gnutls_x509_crt_deinit(pair->crt);
    pair->crt = crt;
    return 0;
}

/* Fills the certificate of a pair that has its key. */
static int certify(struct gb_tls_pair *pair, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                   struct gb_error *err) {
    const struct gb_tls_pair *signer = authority != NULL ? authority : pair;
    int rc = gnutls_x509_crt_set_version(pair->crt, 3);

    if (rc >= 0)
        rc = gnutls_x509_crt_set_key(pair->crt, pair->key);
    if (rc < 0)
        return gb_tls_error(err, "gnutls_x509_crt_set_key", rc);
    if (set_serial(pair->crt, err) != 0 || set_subject(pair->crt, plan->common_name, err) != 0 ||
        set_times(pair->crt, plan, authority, err) != 0 || set_names(pair->crt, plan->names, err) != 0 ||
        set_uses(pair->crt, plan->role, err) != 0 || set_ids(pair->crt, signer, err) != 0)
        return -1;
    rc = gnutls_x509_crt_sign2(pair->crt, signer->crt, signer->key, GNUTLS_DIG_SHA256, 0);
    return rc < 0 ? gb_tls_error(err, "gnutls_x509_crt_sign2", rc) : read_again(pair, err);
}

struct gb_tls_pair *gb_tls_pair_make(const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                                     struct gb_error *err) {
    struct gb_tls_pair *pair;
    int rc;

    if (authority != NULL && check_authority(authority, plan->now_s, err) != 0)
        return NULL;
    pair = gb_tls_pair_new(err);
    if (pair == NULL)
        return NULL;
    rc = gnutls_x509_privkey_generate(pair->key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (rc < 0)
        gb_tls_error(err, "gnutls_x509_privkey_generate", rc);
    if (rc < 0 || certify(pair, plan, authority, err) != 0) {
        gb_tls_pair_free(pair);
        return NULL;
    }
    return pair;
}

/* --- renewal ------------------------------------------------------------------------------------------------------ */

static int copy_names(gnutls_x509_crt_t from, gnutls_x509_crt_t to, struct gb_error *err) {
    unsigned char name[GB_TLS_NAME_SIZE];
    unsigned i;

    for (i = 0;; i++) {
        size_t n = sizeof(name);
        int type = gnutls_x509_crt_get_subject_alt_name(from, i, name, &n, NULL);
        int rc;

        if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
            return 0;
        if (type < 0)
            return gb_tls_error(err, "gnutls_x509_crt_get_subject_alt_name", type);
        rc = gnutls_x509_crt_set_subject_alt_name(to, (gnutls_x509_subject_alt_name_t)type, name, (unsigned)n,
                                                  GNUTLS_FSAN_APPEND);
        if (rc < 0)
            return gb_tls_error(err, "gnutls_x509_crt_set_subject_alt_name", rc);
    }
}

int gb_tls_pair_names(const struct gb_tls_pair *pair, struct gb_tls_names *names, struct gb_error *err) {
    unsigned char name[GB_TLS_NAME_SIZE];
    char text[INET6_ADDRSTRLEN];
    unsigned i;

    for (i = 0;; i++) {
        size_t n = sizeof(name) - 1;
        int type = gnutls_x509_crt_get_subject_alt_name(pair->crt, i, name, &n, NULL);
        struct gb_error why = GB_ERROR_INIT;

        if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
            return 0;
        if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16) &&
            inet_ntop(n == 4 ? AF_INET : AF_INET6, name, text, sizeof(text)) != NULL)
            gb_tls_names_add_address(names, text, &why);
        name[type == GNUTLS_SAN_DNSNAME ? n : 0] = '\0';
        if (type == GNUTLS_SAN_DNSNAME)
            gb_tls_names_add_host(names, (const char *)name, &why);
        if (why.code == GB_ERR_INTERNAL)
            return gb_error_move(err, &why);
    }
}

struct gb_tls_pair *gb_tls_pair_renew(const struct gb_tls_plan *plan, const struct gb_tls_pair *old,
                                      const struct gb_tls_pair *authority, struct gb_error *err) {
    struct gb_tls_plan same = *plan;
    char name[COMMON_NAME_MAX + 1] = "";
    size_t n = sizeof(name);
    struct gb_tls_pair *pair;
    int rc;

    if (check_authority(authority, plan->now_s, err) != 0 || (pair = gb_tls_pair_new(err)) == NULL)
        return NULL;
    if (same.common_name == NULL) {
        gnutls_x509_crt_get_dn_by_oid(old->crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n);
        same.common_name = name;
    }
    rc = gnutls_x509_privkey_cpy(pair->key, old->key);
    if (rc < 0)
        gb_tls_error(err, "gnutls_x509_privkey_cpy", rc);
    if (rc < 0 || (!plan->only && copy_names(old->crt, pair->crt, err) != 0) ||
        certify(pair, &same, authority, err) != 0) {
        gb_tls_pair_free(pair);
        return NULL;
    }
    return pair;
}
