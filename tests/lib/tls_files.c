#include "tls_files.h"

#include <check.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

char *gb_tls_path(const struct gb_tls_files *files, const char *name, char *path) {
    snprintf(path, GB_TLS_PATH, "%s/%s", files->folder, name);
    return path;
}

void gb_tls_write(const struct gb_tls_files *files, const char *name, const void *bytes, size_t n) {
    char path[GB_TLS_PATH];
    FILE *f = fopen(gb_tls_path(files, name, path), "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

void gb_tls_join(const struct gb_tls_files *files, const char *name, ...) {
    static char all[65536];
    char path[GB_TLS_PATH];
    const char *part;
    size_t n = 0;
    va_list parts;

    va_start(parts, name);
    while ((part = va_arg(parts, const char *))) {
        FILE *f = fopen(gb_tls_path(files, part, path), "rb");

        ck_assert_ptr_nonnull(f);
        n += fread(all + n, 1, sizeof(all) - n, f);
        fclose(f);
    }
    va_end(parts);
    gb_tls_write(files, name, all, n);
}

/* --- certificates ------------------------------------------------------------------------------------------------- */

static void describe(gnutls_x509_crt_t cert, const struct gb_tls_wish *wish, bool signs) {
    static unsigned char serial[] = {0, 0, 0, 1};

    serial[3]++;
    ck_assert_int_eq(gnutls_x509_crt_set_version(cert, 3), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_serial(cert, serial, sizeof(serial)), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_dn(cert, wish->dn, NULL), 0);
    gnutls_x509_crt_set_activation_time(cert, time(NULL) + (time_t)wish->from_days * DAY_S);
    gnutls_x509_crt_set_expiration_time(cert, time(NULL) + (time_t)wish->to_days * DAY_S);
    gnutls_x509_crt_set_basic_constraints(cert, signs, -1);
    gnutls_x509_crt_set_key_usage(cert, signs ? GNUTLS_KEY_KEY_CERT_SIGN : GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (wish->dns)
        gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_DNSNAME, wish->dns, (unsigned)strlen(wish->dns),
                                             GNUTLS_FSAN_APPEND);
    if (wish->uri)
        gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_URI, wish->uri, (unsigned)strlen(wish->uri),
                                             GNUTLS_FSAN_APPEND);
    if (wish->purpose)
        gnutls_x509_crt_set_key_purpose_oid(cert, wish->purpose, 0);
}

static void save(const struct gb_tls_files *files, const char *name, const struct gb_tls_signer *made) {
    gnutls_datum_t text;
    char file[64];

    ck_assert_int_eq(gnutls_x509_crt_export2(made->cert, GNUTLS_X509_FMT_PEM, &text), 0);
    snprintf(file, sizeof(file), "%s.pem", name);
    gb_tls_write(files, file, text.data, text.size);
    gnutls_free(text.data);
    ck_assert_int_eq(gnutls_x509_privkey_export2(made->key, GNUTLS_X509_FMT_PEM, &text), 0);
    snprintf(file, sizeof(file), "%s.key", name);
    gb_tls_write(files, file, text.data, text.size);
    gnutls_free(text.data);
}

void gb_tls_issue(const struct gb_tls_files *files, const char *name, const struct gb_tls_wish *wish,
                  const struct gb_tls_signer *by, struct gb_tls_signer *ret) {
    struct gb_tls_signer made;

    ck_assert_int_eq(gnutls_x509_privkey_init(&made.key), 0);
    ck_assert_int_eq(
        gnutls_x509_privkey_generate(made.key, GNUTLS_PK_EC, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
    ck_assert_int_eq(gnutls_x509_crt_init(&made.cert), 0);
    ck_assert_int_eq(gnutls_x509_crt_set_key(made.cert, made.key), 0);
    describe(made.cert, wish, strstr(wish->dn, "authority") != NULL);
    ck_assert_int_eq(
        gnutls_x509_crt_sign2(made.cert, by ? by->cert : made.cert, by ? by->key : made.key, GNUTLS_DIG_SHA256, 0), 0);
    save(files, name, &made);
    if (ret)
        *ret = made;
    else
        gb_tls_signer_done(&made);
}

void gb_tls_signer_done(struct gb_tls_signer *signer) {
    gnutls_x509_crt_deinit(signer->cert);
    gnutls_x509_privkey_deinit(signer->key);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

void gb_tls_files_init(struct gb_tls_files *files) {
    static unsigned made;
    char dn[64];
    struct gb_tls_wish root = {.dn = dn, .from_days = -2, .to_days = 30};

    snprintf(dn, sizeof(dn), "CN=test authority %u", ++made);
    snprintf(files->folder, sizeof(files->folder), "/tmp/gb-tls-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(files->folder));
    gb_tls_issue(files, "root", &root, NULL, &files->root);
}

void gb_tls_files_done(struct gb_tls_files *files) {
    char path[GB_TLS_PATH + 256];
    DIR *dir = opendir(files->folder);
    struct dirent *entry;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        snprintf(path, sizeof(path), "%s/%s", files->folder, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)!unlink(path);
    }
    closedir(dir);
    (void)!rmdir(files->folder);
    gb_tls_signer_done(&files->root);
}
