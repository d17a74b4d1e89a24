#include "tls/show.h"

#include <arpa/inet.h>
#include <string.h>
#include <time.h>

#include "tls/inside.h"

#define CHAIN_MAX 32
#define TEXT_SIZE 1024
#define DAY_S 86400

char *gb_tls_date(int64_t time_s, char ret[GB_TLS_DATE_SIZE]) {
    time_t at = (time_t)time_s;
    struct tm parts;

    if (gmtime_r(&at, &parts) == NULL || strftime(ret, GB_TLS_DATE_SIZE, "%Y-%m-%d", &parts) == 0)
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
    int rc;

    if (gb_tls_read(path, &text, err) != 0)
        return -1;
    rc = gnutls_x509_crt_list_import(ret, &count, &text, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(text.data);
    if (rc == GNUTLS_E_SHORT_MEMORY_BUFFER)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has more than %d certificates", path, CHAIN_MAX);
    if (rc <= 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no certificate in PEM: %s", path,
                            gnutls_strerror(rc));
    return rc;
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
