/* Certificates of a private authority, made by the test itself. */
#ifndef GB_TLS_FILES_H
#define GB_TLS_FILES_H

#include <gnutls/x509.h>
#include <stdbool.h>
#include <stddef.h>

#define GB_TLS_PATH 256

struct gb_tls_signer {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
};

/* What a certificate says. */
struct gb_tls_wish {
    const char *dn;
    const char *dns;     /* its name; NULL: none */
    const char *uri;     /* the same */
    const char *purpose; /* a GNUTLS_KP_...; NULL: none is said, which permits all */
    int from_days;       /* from now on */
    int to_days;
};

struct gb_tls_files {
    char folder[64];
    struct gb_tls_signer root;
};

/* Makes a folder and the authority; its certificate is root.pem. */
void gb_tls_files_init(struct gb_tls_files *files);
void gb_tls_files_done(struct gb_tls_files *files);

/* FOLDER/NAME. Returns path, which has GB_TLS_PATH bytes. */
char *gb_tls_path(const struct gb_tls_files *files, const char *name, char *path);

/* Makes NAME.pem and NAME.key (mode 0600), signed by `by`, or by itself if that is NULL. *ret (may be NULL): both; the
 * caller gives them back. */
void gb_tls_issue(const struct gb_tls_files *files, const char *name, const struct gb_tls_wish *wish,
                  const struct gb_tls_signer *by, struct gb_tls_signer *ret);
void gb_tls_signer_done(struct gb_tls_signer *signer);

/* Writes NAME with the contents of the files that follow, one after another; NULL ends them. */
void gb_tls_join(const struct gb_tls_files *files, const char *name, ...);
void gb_tls_write(const struct gb_tls_files *files, const char *name, const void *bytes, size_t n);

#endif
