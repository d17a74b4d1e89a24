/* Pairs of a certificate and its key for --tls-cert: made, written, read and shown. GnuTLS does the arithmetic. A key
 * is written for its owner alone, and never over another file. The daemon's command tls calls this. */
#include "tls/pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

/* --- pair --------------------------------------------------------------------------------------------------------- */

#define SERIAL_BYTES 16
#define ID_BYTES 64
#define COMMON_NAME_MAX 64 /* RFC 5280's ub-common-name */
#define DAY_S 86400

/* Sets an error of GnuTLS. Returns -1. */
static int tls_error(struct gb_error *err, const char *call, int number) {
    gb_error_native(err, "gnutls", number, gnutls_strerror_name(number), call);
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: %s", call, gnutls_strerror(number));
}

/* An empty pair. Returns NULL with INTERNAL. */
static struct gb_tls_pair *tls_pair_new(struct gb_error *err) {
    struct gb_tls_pair *pair = calloc(1, sizeof(*pair));

    if (!pair || gnutls_x509_crt_init(&pair->crt) < 0 || gnutls_x509_privkey_init(&pair->key) < 0) {
        gb_tls_pair_free(pair);
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    return pair;
}

void gb_tls_pair_free(struct gb_tls_pair *pair) {
    if (!pair)
        return;
    if (pair->crt)
        gnutls_x509_crt_deinit(pair->crt);
    if (pair->key)
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
    int r;

    if (gb_random(serial, sizeof(serial), err) < 0)
        return -1;
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40);
    r = gnutls_x509_crt_set_serial(crt, serial, sizeof(serial));
    return r < 0 ? tls_error(err, "gnutls_x509_crt_set_serial", r) : 0;
}

static int set_subject(gnutls_x509_crt_t crt, const char *common_name, struct gb_error *err) {
    size_t n = strnlen(common_name, COMMON_NAME_MAX);
    int r = gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, common_name, (unsigned)n);

    return r < 0 ? tls_error(err, "gnutls_x509_crt_set_dn_by_oid", r) : 0;
}

static int set_times(gnutls_x509_crt_t crt, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                     struct gb_error *err) {
    int64_t from = plan->now_s - GB_TLS_SLACK_S;
    int64_t until = from + (int64_t)plan->days * DAY_S - 1; /* the last second counts (RFC 5280, 4.1.2.5) */
    int r;

    if (authority && until > gb_tls_pair_until(authority))
        until = gb_tls_pair_until(authority);
    if (authority && from < (int64_t)gnutls_x509_crt_get_activation_time(authority->crt))
        from = (int64_t)gnutls_x509_crt_get_activation_time(authority->crt);
    r = gnutls_x509_crt_set_activation_time(crt, (time_t)from);
    if (r >= 0)
        r = gnutls_x509_crt_set_expiration_time(crt, (time_t)until);
    return r < 0 ? tls_error(err, "gnutls_x509_crt_set_expiration_time", r) : 0;
}

static int set_names(gnutls_x509_crt_t crt, const struct gb_tls_names *names, struct gb_error *err) {
    size_t i;

    for (i = 0; names && i < names->count; i++) {
        const struct gb_tls_name *name = &names->items[i];
        bool host = name->address_bytes == 0;
        int r = gnutls_x509_crt_set_subject_alt_name(
            crt, host ? GNUTLS_SAN_DNSNAME : GNUTLS_SAN_IPADDRESS, host ? (const void *)name->text : name->address,
            (unsigned)(host ? strlen(name->text) : name->address_bytes), GNUTLS_FSAN_APPEND);

        if (r < 0)
            return tls_error(err, "gnutls_x509_crt_set_subject_alt_name", r);
    }
    return 0;
}

/* An authority signs certificates and no other authority; the others do what they are for and nothing else. */
static int set_uses(gnutls_x509_crt_t crt, enum gb_tls_role role, struct gb_error *err) {
    bool authority = role == GB_TLS_AUTHORITY;
    int r = gnutls_x509_crt_set_basic_constraints(crt, authority, authority ? 0 : -1);

    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(crt, authority ? GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN
                                                         : GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (r >= 0 && !authority)
        r = gnutls_x509_crt_set_key_purpose_oid(
            crt, role == GB_TLS_SERVER ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT, 0);
    return r < 0 ? tls_error(err, "gnutls_x509_crt_set_key_usage", r) : 0;
}

/* The key's own id, and that of the key that signs. */
static int set_ids(gnutls_x509_crt_t crt, const struct gb_tls_pair *signer, struct gb_error *err) {
    unsigned char own[ID_BYTES];
    unsigned char theirs[ID_BYTES];
    size_t own_bytes = sizeof(own);
    size_t their_bytes = sizeof(theirs);
    int r = gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA1, own, &own_bytes);

    if (r >= 0)
        r = gnutls_x509_crt_set_subject_key_id(crt, own, own_bytes);
    if (r >= 0)
        r = gnutls_x509_crt_get_subject_key_id(signer->crt, theirs, &their_bytes, NULL);
    if (r >= 0)
        r = gnutls_x509_crt_set_authority_key_id(crt, theirs, their_bytes);
    return r < 0 ? tls_error(err, "gnutls_x509_crt_set_authority_key_id", r) : 0;
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

/* GnuTLS gives names only of a certificate that it read. */
static int read_again(struct gb_tls_pair *pair, struct gb_error *err) {
    gnutls_datum_t der = {NULL, 0};
    gnutls_x509_crt_t crt = NULL;
    int r = gnutls_x509_crt_export2(pair->crt, GNUTLS_X509_FMT_DER, &der);

    if (r >= 0)
        r = gnutls_x509_crt_init(&crt);
    if (r >= 0)
        r = gnutls_x509_crt_import(crt, &der, GNUTLS_X509_FMT_DER);
    gnutls_free(der.data);
    if (r < 0) {
        if (crt)
            gnutls_x509_crt_deinit(crt);
        return tls_error(err, "gnutls_x509_crt_import", r);
    }
    gnutls_x509_crt_deinit(pair->crt);
    pair->crt = crt;
    return 0;
}

/* Fills the certificate of a pair that has its key. */
static int certify(struct gb_tls_pair *pair, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                   struct gb_error *err) {
    const struct gb_tls_pair *signer = authority ? authority : pair;
    int r = gnutls_x509_crt_set_version(pair->crt, 3);

    if (r >= 0)
        r = gnutls_x509_crt_set_key(pair->crt, pair->key);
    if (r < 0)
        return tls_error(err, "gnutls_x509_crt_set_key", r);
    if (set_serial(pair->crt, err) < 0 || set_subject(pair->crt, plan->common_name, err) < 0 ||
        set_times(pair->crt, plan, authority, err) < 0 || set_names(pair->crt, plan->names, err) < 0 ||
        set_uses(pair->crt, plan->role, err) < 0 || set_ids(pair->crt, signer, err) < 0)
        return -1;
    r = gnutls_x509_crt_sign2(pair->crt, signer->crt, signer->key, GNUTLS_DIG_SHA256, 0);
    return r < 0 ? tls_error(err, "gnutls_x509_crt_sign2", r) : read_again(pair, err);
}

struct gb_tls_pair *gb_tls_pair_make(const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                                     struct gb_error *err) {
    struct gb_tls_pair *pair;
    int r;

    if (authority && check_authority(authority, plan->now_s, err) < 0)
        return NULL;
    pair = tls_pair_new(err);
    if (!pair)
        return NULL;
    r = gnutls_x509_privkey_generate(pair->key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (r < 0)
        tls_error(err, "gnutls_x509_privkey_generate", r);
    if (r < 0 || certify(pair, plan, authority, err) < 0) {
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
        int r;

        if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
            return 0;
        if (type < 0)
            return tls_error(err, "gnutls_x509_crt_get_subject_alt_name", type);
        r = gnutls_x509_crt_set_subject_alt_name(to, (gnutls_x509_subject_alt_name_t)type, name, (unsigned)n,
                                                 GNUTLS_FSAN_APPEND);
        if (r < 0)
            return tls_error(err, "gnutls_x509_crt_set_subject_alt_name", r);
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
            inet_ntop(n == 4 ? AF_INET : AF_INET6, name, text, sizeof(text)))
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
    int r;

    if (check_authority(authority, plan->now_s, err) < 0 || !(pair = tls_pair_new(err)))
        return NULL;
    if (!same.common_name) {
        gnutls_x509_crt_get_dn_by_oid(old->crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n);
        same.common_name = name;
    }
    r = gnutls_x509_privkey_cpy(pair->key, old->key);
    if (r < 0)
        tls_error(err, "gnutls_x509_privkey_cpy", r);
    if (r < 0 || (!plan->only && copy_names(old->crt, pair->crt, err) < 0) ||
        certify(pair, &same, authority, err) < 0) {
        gb_tls_pair_free(pair);
        return NULL;
    }
    return pair;
}

/* --- pair files --------------------------------------------------------------------------------------------------- */

/* The files of a certificate and its key. */

#define FILE_BYTES_MAX (1u << 20)

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* All of a file, NUL-terminated, of at most 1 MiB; freed with gnutls_free(). INVALID_ARGUMENT. */
static int tls_read(const char *path, gnutls_datum_t *ret, struct gb_error *err) {
    FILE *file = fopen(path, "re");
    size_t n;

    if (!file)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be read: %s", path, strerror(errno));
    ret->data = gnutls_malloc(FILE_BYTES_MAX + 1);
    n = ret->data ? fread(ret->data, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (!ret->data || ferror(file) || n > FILE_BYTES_MAX) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be read: %s", path,
                     n > FILE_BYTES_MAX ? "it has more than 1 MiB" : strerror(ferror(file) ? errno : ENOMEM));
        gnutls_free(ret->data);
        fclose(file);
        return -1;
    }
    ret->data[n] = '\0';
    ret->size = (unsigned)n;
    fclose(file);
    return 0;
}

static int load_certificate(struct gb_tls_pair *pair, const char *path, struct gb_error *err) {
    gnutls_datum_t text;
    int r;

    if (tls_read(path, &text, err) < 0)
        return -1;
    r = gnutls_x509_crt_import(pair->crt, &text, GNUTLS_X509_FMT_PEM);
    gnutls_free(text.data);
    return r < 0 ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no certificate in PEM: %s", path,
                                gnutls_strerror(r))
                 : 0;
}

static int load_key(struct gb_tls_pair *pair, const char *path, struct gb_error *err) {
    gnutls_datum_t text;
    int r;

    if (tls_read(path, &text, err) < 0)
        return -1;
    r = gnutls_x509_privkey_import2(pair->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    return r < 0 ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no private key in PEM: %s", path,
                                gnutls_strerror(r))
                 : 0;
}

static int check_match(const struct gb_tls_pair *pair, const char *certificate, const char *key, struct gb_error *err) {
    unsigned char of_crt[64];
    unsigned char of_key[64];
    size_t n = sizeof(of_crt);
    size_t m = sizeof(of_key);

    if (gnutls_x509_crt_get_key_id(pair->crt, GNUTLS_KEYID_USE_SHA256, of_crt, &n) < 0 ||
        gnutls_x509_privkey_get_key_id(pair->key, GNUTLS_KEYID_USE_SHA256, of_key, &m) < 0 || n != m ||
        memcmp(of_crt, of_key, n) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.160s is not the key of %.160s", key, certificate);
    return 0;
}

struct gb_tls_pair *gb_tls_pair_load(const char *certificate, const char *key, struct gb_error *err) {
    struct gb_tls_pair *pair = tls_pair_new(err);

    if (pair && (load_certificate(pair, certificate, err) < 0 || load_key(pair, key, err) < 0 ||
                 check_match(pair, certificate, key, err) < 0)) {
        gb_tls_pair_free(pair);
        pair = NULL;
    }
    return pair;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Makes a file that must not exist yet. If that fails no file is left. */
static int write_new(const char *path, mode_t mode, const gnutls_datum_t *text, struct gb_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int number = 0;

    if (fd < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "%.200s cannot be made: %s", path, strerror(errno));
    errno = 0;
    if (fchmod(fd, mode) != 0 || write(fd, text->data, text->size) != (ssize_t)text->size || fsync(fd) != 0)
        number = errno != 0 ? errno : EIO;
    if (close(fd) != 0 && number == 0)
        number = errno;
    if (number == 0)
        return 0;
    unlink(path);
    return gb_error_set(err, GB_ERR_INTERNAL, "%.200s cannot be written: %s", path, strerror(number));
}

static int write_certificate(const struct gb_tls_pair *pair, const char *path, struct gb_error *err) {
    gnutls_datum_t text = {NULL, 0};
    int r = gnutls_x509_crt_export2(pair->crt, GNUTLS_X509_FMT_PEM, &text);

    if (r < 0)
        return tls_error(err, "gnutls_x509_crt_export2", r);
    r = write_new(path, 0644, &text, err);
    gnutls_free(text.data);
    return r;
}

int gb_tls_pair_save(const struct gb_tls_pair *pair, const char *certificate, const char *key, struct gb_error *err) {
    gnutls_datum_t text = {NULL, 0};
    int r = gnutls_x509_privkey_export2_pkcs8(pair->key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &text);

    if (r < 0)
        return tls_error(err, "gnutls_x509_privkey_export2_pkcs8", r);
    r = write_new(key, 0600, &text, err);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    if (r < 0)
        return -1;
    if (write_certificate(pair, certificate, err) == 0)
        return 0;
    unlink(key);
    return -1;
}

int gb_tls_pair_replace(const struct gb_tls_pair *pair, const char *certificate, struct gb_error *err) {
    char *beside = NULL;
    int r;

    if (asprintf(&beside, "%s.new", certificate) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    unlink(beside); /* left by one that was killed */
    r = write_certificate(pair, beside, err);
    if (r == 0 && rename(beside, certificate) != 0) {
        r = gb_error_set(err, GB_ERR_INTERNAL, "%.200s cannot be replaced: %s", certificate, strerror(errno));
        unlink(beside);
    }
    free(beside);
    return r;
}

/* --- show --------------------------------------------------------------------------------------------------------- */

#define CHAIN_MAX 32
#define TEXT_SIZE 1024

char *gb_tls_date(int64_t time_s, char ret[GB_TLS_DATE_SIZE]) {
    time_t at = (time_t)time_s;
    struct tm parts;

    if (!gmtime_r(&at, &parts) || strftime(ret, GB_TLS_DATE_SIZE, "%Y-%m-%d", &parts) == 0)
        strcpy(ret, "?");
    return ret;
}

/* A certificate's text may come from elsewhere: a terminal would obey its control characters. */
static void put(FILE *out, const char *label, const char *text) {
    fprintf(out, "%-12s ", label);
    for (; *text != '\0'; text++)
        putc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
    putc('\n', out);
}

static void put_hex(FILE *out, const char *label, const unsigned char *bytes, size_t n) {
    size_t i;

    fprintf(out, "%-12s ", label);
    for (i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    putc('\n', out);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* One of the names, by its position. Returns false behind the last. */
static bool name_at(gnutls_x509_crt_t crt, unsigned i, char *ret, size_t size) {
    unsigned char name[GB_TLS_NAME_SIZE];
    size_t n = sizeof(name) - 1;
    int type = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);

    if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return false;
    snprintf(ret, size, "?");
    if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16))
        inet_ntop(n == 4 ? AF_INET : AF_INET6, name, ret, (socklen_t)size);
    else if (type >= 0 && type != GNUTLS_SAN_IPADDRESS && type != GNUTLS_SAN_OTHERNAME) {
        name[n] = '\0';
        snprintf(ret, size, "%s", (const char *)name);
    }
    return true;
}

static void names_of(gnutls_x509_crt_t crt, char *ret, size_t size) {
    char name[GB_TLS_NAME_SIZE];
    size_t at = 0;
    unsigned i;

    ret[0] = '\0';
    for (i = 0; name_at(crt, i, name, sizeof(name)) && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%s", i > 0 ? ", " : "", name);
}

/* --- one certificate ---------------------------------------------------------------------------------------------- */

/* A name as RFC 4514 writes it, and as the subject of a token has it. */
static void put_name(FILE *out, const char *label, gnutls_x509_crt_t crt,
                     int (*get)(gnutls_x509_crt_t, gnutls_datum_t *, unsigned)) {
    gnutls_datum_t text = {NULL, 0};

    put(out, label, get(crt, &text, 0) >= 0 && text.size > 0 ? (const char *)text.data : "none");
    gnutls_free(text.data);
}

static void put_subjects(FILE *out, gnutls_x509_crt_t crt) {
    char text[TEXT_SIZE] = "";

    put_name(out, "subject", crt, gnutls_x509_crt_get_dn3);
    put_name(out, "issuer", crt, gnutls_x509_crt_get_issuer_dn3);
    names_of(crt, text, sizeof(text));
    put(out, "names", text[0] != '\0' ? text : "none");
}

static void put_times(FILE *out, gnutls_x509_crt_t crt, int64_t now_s) {
    int64_t from = (int64_t)gnutls_x509_crt_get_activation_time(crt);
    int64_t until = (int64_t)gnutls_x509_crt_get_expiration_time(crt);
    char date[GB_TLS_DATE_SIZE];

    fprintf(out, "%-12s %s%s\n", "valid from", gb_tls_date(from, date), from > now_s ? " (not yet valid)" : "");
    gb_tls_date(until, date);
    if (until < now_s)
        fprintf(out, "%-12s %s (expired %lld days ago)\n", "valid until", date,
                (long long)((now_s - until + DAY_S / 2) / DAY_S));
    else
        fprintf(out, "%-12s %s (%lld days left)\n", "valid until", date,
                (long long)((until - now_s + DAY_S / 2) / DAY_S));
}

static void put_uses(FILE *out, gnutls_x509_crt_t crt) {
    unsigned authority = 0;
    char text[TEXT_SIZE] = "";
    size_t at = 0;
    unsigned i;

    gnutls_x509_crt_get_basic_constraints(crt, NULL, &authority, NULL);
    if (authority != 0)
        at += (size_t)snprintf(text, sizeof(text), "authority");
    for (i = 0; at < sizeof(text) - 64; i++) {
        char oid[64];
        size_t n = sizeof(oid);

        if (gnutls_x509_crt_get_key_purpose_oid(crt, i, oid, &n, NULL) < 0)
            break;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at > 0 ? ", " : "",
                               strcmp(oid, GNUTLS_KP_TLS_WWW_SERVER) == 0   ? "server"
                               : strcmp(oid, GNUTLS_KP_TLS_WWW_CLIENT) == 0 ? "client"
                                                                            : oid);
    }
    put(out, "for", text[0] != '\0' ? text : "anything");
}

static void put_key(FILE *out, gnutls_x509_crt_t crt) {
    unsigned char bytes[64];
    size_t n = sizeof(bytes);
    unsigned bits = 0;
    int kind = gnutls_x509_crt_get_pk_algorithm(crt, &bits);

    fprintf(out, "%-12s %s, %u bits\n", "key", gnutls_pk_get_name((gnutls_pk_algorithm_t)kind), bits);
    if (gnutls_x509_crt_get_serial(crt, bytes, &n) >= 0)
        put_hex(out, "serial", bytes, n);
    n = sizeof(bytes);
    if (gnutls_x509_crt_get_fingerprint(crt, GNUTLS_DIG_SHA256, bytes, &n) >= 0)
        put_hex(out, "sha-256", bytes, n);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Reads at most CHAIN_MAX certificates, which are the caller's. Returns how many, or -1. */
static int read_chain(const char *path, gnutls_x509_crt_t *ret, struct gb_error *err) {
    unsigned count = CHAIN_MAX;
    gnutls_datum_t text;
    int r;

    if (tls_read(path, &text, err) < 0)
        return -1;
    r = gnutls_x509_crt_list_import(ret, &count, &text, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(text.data);
    if (r == GNUTLS_E_SHORT_MEMORY_BUFFER)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has more than %d certificates", path, CHAIN_MAX);
    if (r <= 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no certificate in PEM: %s", path,
                            gnutls_strerror(r));
    return r;
}

int gb_tls_show(FILE *out, const char *path, int64_t now_s, struct gb_error *err) {
    gnutls_x509_crt_t chain[CHAIN_MAX];
    int count = read_chain(path, chain, err);
    int i;

    for (i = 0; i < count; i++) {
        if (i > 0)
            putc('\n', out);
        put_subjects(out, chain[i]);
        put_uses(out, chain[i]);
        put_times(out, chain[i], now_s);
        put_key(out, chain[i]);
        gnutls_x509_crt_deinit(chain[i]);
    }
    return count < 0 ? -1 : 0;
}

int gb_tls_names_text(const char *path, char *ret, size_t size, struct gb_error *err) {
    gnutls_x509_crt_t chain[CHAIN_MAX];
    int count = read_chain(path, chain, err);
    int i;

    if (count > 0)
        names_of(chain[0], ret, size);
    for (i = 0; i < count; i++)
        gnutls_x509_crt_deinit(chain[i]);
    return count < 0 ? -1 : 0;
}
