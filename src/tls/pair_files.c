/* The files of a certificate and its key. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tls/inside.h"

#define FILE_BYTES_MAX (1u << 20)

/* --- reading ------------------------------------------------------------------------------------------------------ */

int gb_tls_read(const char *path, gnutls_datum_t *ret, struct gb_error *err) {
    FILE *file = fopen(path, "re");
    size_t n;

    if (file == NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be read: %s", path, strerror(errno));
    ret->data = gnutls_malloc(FILE_BYTES_MAX + 1);
    n = ret->data != NULL ? fread(ret->data, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (ret->data == NULL || ferror(file) || n > FILE_BYTES_MAX) {
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
    int rc;

    if (gb_tls_read(path, &text, err) != 0)
        return -1;
    rc = gnutls_x509_crt_import(pair->crt, &text, GNUTLS_X509_FMT_PEM);
    gnutls_free(text.data);
    return rc < 0 ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no certificate in PEM: %s", path,
                                 gnutls_strerror(rc))
                  : 0;
}

static int load_key(struct gb_tls_pair *pair, const char *path, struct gb_error *err) {
    gnutls_datum_t text;
    int rc;

    if (gb_tls_read(path, &text, err) != 0)
        return -1;
    rc = gnutls_x509_privkey_import2(pair->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    return rc < 0 ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has no private key in PEM: %s", path,
                                 gnutls_strerror(rc))
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
    struct gb_tls_pair *pair = gb_tls_pair_new(err);

    if (pair != NULL && (load_certificate(pair, certificate, err) != 0 || load_key(pair, key, err) != 0 ||
                         check_match(pair, certificate, key, err) != 0)) {
        gb_tls_pair_free(pair);
        pair = NULL;
    }
    return pair;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Makes a file that is not there. A failure leaves none. */
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
    int rc = gnutls_x509_crt_export2(pair->crt, GNUTLS_X509_FMT_PEM, &text);

    if (rc < 0)
        return gb_tls_error(err, "gnutls_x509_crt_export2", rc);
    rc = write_new(path, 0644, &text, err);
    gnutls_free(text.data);
    return rc;
}

int gb_tls_pair_save(const struct gb_tls_pair *pair, const char *certificate, const char *key, struct gb_error *err) {
    gnutls_datum_t text = {NULL, 0};
    int rc = gnutls_x509_privkey_export2_pkcs8(pair->key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &text);

    if (rc < 0)
        return gb_tls_error(err, "gnutls_x509_privkey_export2_pkcs8", rc);
    rc = write_new(key, 0600, &text, err);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    if (rc != 0)
        return -1;
    if (write_certificate(pair, certificate, err) == 0)
        return 0;
    unlink(key);
    return -1;
}

int gb_tls_pair_replace(const struct gb_tls_pair *pair, const char *certificate, struct gb_error *err) {
    char *beside = NULL;
    int rc;

    if (asprintf(&beside, "%s.new", certificate) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    unlink(beside); /* left by one that was killed */
    rc = write_certificate(pair, beside, err);
    if (rc == 0 && rename(beside, certificate) != 0) {
        rc = gb_error_set(err, GB_ERR_INTERNAL, "%.200s cannot be replaced: %s", certificate, strerror(errno));
        unlink(beside);
    }
    free(beside);
    return rc;
}
