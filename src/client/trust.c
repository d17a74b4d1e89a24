#include "client/trust.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)16 << 20)

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Appends a file, with the end of a line. 0, or -1 with errno. */
static int add_file(struct gbc_text *text, const char *path) {
    FILE *file = fopen(path, "re");
    char data[8192];
    int number = 0;
    size_t n;

    if (!file)
        return -1;
    while ((n = fread(data, 1, sizeof(data), file)) > 0 && text->bytes <= FILE_BYTES_MAX)
        gbc_text_add(text, data, n);
    if (ferror(file))
        number = errno;
    else if (text->bytes > FILE_BYTES_MAX)
        number = EFBIG;
    fclose(file);
    gbc_text_add(text, "\n", 1);
    errno = number;
    return number == 0 ? 0 : -1;
}

/* The files of a folder that have certificates; others, and what cannot be read, are left out. */
static int add_folder(struct gbc_text *text, const char *folder) {
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (!dir)
        return -1;
    while ((entry = readdir(dir)) != NULL) {
        struct gbc_text one = {.data = NULL};
        struct stat st;
        char *path;

        if (asprintf(&path, "%s/%s", folder, entry->d_name) < 0)
            continue;
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && add_file(&one, path) == 0 && !one.failed &&
            strstr(one.data, "-----BEGIN CERTIFICATE-----"))
            gbc_text_add(text, one.data, one.bytes);
        gbc_text_done(&one);
        free(path);
    }
    closedir(dir);
    return 0;
}

/* --- as GnuTLS takes it ------------------------------------------------------------------------------------------- */

static int add_authorities(gnutls_certificate_credentials_t to, const struct gbc_settings *set,
                           struct gpubuf_error *err) {
    gnutls_datum_t memory = {(unsigned char *)set->ca_text, (unsigned)set->ca_bytes};
    int n = set->ca_text ? gnutls_certificate_set_x509_trust_mem(to, &memory, GNUTLS_X509_FMT_PEM)
                         : gnutls_certificate_set_x509_trust_file(to, set->cacert, GNUTLS_X509_FMT_PEM);

    if (n > 0)
        return 0;
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s, of --cacert or GPUBUF_CACERT, has no certificate in PEM%s%s",
                         set->cacert, n < 0 ? ": " : "", n < 0 ? gnutls_strerror(n) : "");
}

/* Whether the key was to be in the certificate's file, which has none. */
static bool lacks_key(const struct gbc_settings *set) {
    struct gbc_text text = {.data = NULL};
    bool lacks = strcmp(set->cert, set->key) == 0 && add_file(&text, set->cert) == 0 && !text.failed &&
                 strstr(text.data, "-----BEGIN CERTIFICATE-----") && !strstr(text.data, "PRIVATE KEY-----");

    gbc_text_done(&text);
    return lacks;
}

static int add_own(gnutls_certificate_credentials_t to, const struct gbc_settings *set, struct gpubuf_error *err) {
    int rc = gnutls_certificate_set_x509_key_file2(to, set->cert, set->key, GNUTLS_X509_FMT_PEM, NULL, 0);

    if (rc >= 0)
        return 0;
    if (lacks_key(set))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "there is no key in %s: give it with --key or GPUBUF_KEY",
                             set->cert);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s is not the key of the client's certificate %s", set->key,
                             set->cert);
    if (rc == GNUTLS_E_DECRYPTION_FAILED)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "the key %s has a passphrase, which cannot be asked for: give one without", set->key);
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                         "the client's certificate %s with the key %s cannot be used: both are to be in PEM (%s)",
                         set->cert, set->key, gnutls_strerror(rc));
}

static int load(const struct gbc_settings *set, bool system, gnutls_certificate_credentials_t *ret,
                struct gpubuf_error *err) {
    gnutls_certificate_credentials_t to;
    int rc = 0;

    if (gnutls_certificate_allocate_credentials(&to) < 0)
        return gbc_error_memory(err);
    if (set->cacert)
        rc = add_authorities(to, set, err);
    else if (system)
        gnutls_certificate_set_x509_system_trust(to); /* one without any trusts none */
    if (rc == 0 && set->cert)
        rc = add_own(to, set, err);
    if (rc < 0)
        gnutls_certificate_free_credentials(to);
    else
        *ret = to;
    return rc;
}

int gbc_trust_load(const struct gbc_settings *set, gnutls_certificate_credentials_t *ret, struct gpubuf_error *err) {
    return load(set, true, ret, err);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static int take(char **ret, const char *given, const char *name, struct gpubuf_error *err) {
    const char *value = given ? given : getenv(name);

    if (!value || value[0] == '\0')
        return 0;
    *ret = strdup(value);
    return *ret ? 0 : gbc_error_memory(err);
}

static int check_readable(const char *path, const char *what, struct gpubuf_error *err) {
    FILE *file = path ? fopen(path, "re") : NULL;

    if (path && !file)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s %s cannot be read: %s", what, path, strerror(errno));
    if (file)
        fclose(file);
    return 0;
}

static int take_folder(struct gbc_settings *set, struct gpubuf_error *err) {
    struct gbc_text text = {.data = NULL};
    struct stat st;

    if (!set->cacert || stat(set->cacert, &st) < 0 || !S_ISDIR(st.st_mode))
        return check_readable(set->cacert, "the authorities' file", err);
    if (add_folder(&text, set->cacert) < 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the folder %s cannot be read: %s", set->cacert, strerror(errno));
    else if (text.failed)
        gbc_error_memory(err);
    else if (text.bytes == 0)
        gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the folder %s has no file with a certificate in PEM", set->cacert);
    else {
        set->ca_text = text.data;
        set->ca_bytes = text.bytes;
        return 0;
    }
    gbc_text_done(&text);
    return -1;
}

int gbc_trust_take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    gnutls_certificate_credentials_t tried;

    if (take(&set->cacert, options->cacert, "GPUBUF_CACERT", err) < 0 ||
        take(&set->cert, options->cert, "GPUBUF_CERT", err) < 0 ||
        take(&set->key, options->key, "GPUBUF_KEY", err) < 0 || take_folder(set, err) < 0)
        return -1;
    if (set->key && !set->cert)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the key %s needs its certificate: --cert or GPUBUF_CERT",
                             set->key);
    if (set->cert && !set->key && !(set->key = strdup(set->cert)))
        return gbc_error_memory(err);
    if (check_readable(set->cert, "the client's certificate", err) < 0 ||
        check_readable(set->key, "the client's key", err) < 0 || load(set, false, &tried, err) < 0)
        return -1;
    gnutls_certificate_free_credentials(tried);
    return 0;
}

void gbc_trust_done(struct gbc_settings *set) {
    free(set->cacert);
    free(set->ca_text);
    free(set->cert);
    free(set->key);
}
