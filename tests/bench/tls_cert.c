/* A certificate for one run of the benchmark, so that no other program is needed to make it. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"
#include "util.h"

#define DAY_S 86400

static void must(int r, const char *what) {
    if (r < 0)
        bench_die("%s: %s", what, gnutls_strerror(r));
}

static void write_pem(const char *folder, const char *name, const gnutls_datum_t *text) {
    char path[4096];
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        bench_die("%s: the path is too long", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text->data, text->size) != (ssize_t)text->size || close(fd))
        bench_die("cannot write %s", path);
}

static void fill(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key) {
    static const unsigned char serial[] = {0x01};
    struct in_addr address = {htonl(INADDR_LOOPBACK)};
    time_t now = time(NULL);

    must(gnutls_x509_crt_set_version(cert, 3), "version");
    must(gnutls_x509_crt_set_serial(cert, serial, sizeof serial), "serial");
    must(gnutls_x509_crt_set_activation_time(cert, now - DAY_S), "time");
    must(gnutls_x509_crt_set_expiration_time(cert, now + 365 * (time_t)DAY_S), "time");
    must(gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, "localhost", 9), "name");
    must(gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_DNSNAME, "localhost", 9, GNUTLS_FSAN_SET), "name");
    must(gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_IPADDRESS, &address, sizeof address, GNUTLS_FSAN_APPEND),
         "address");
    must(gnutls_x509_crt_set_basic_constraints(cert, 0, -1), "constraints");
    must(gnutls_x509_crt_set_key(cert, key), "key");
    must(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), "signature");
}

void bench_tls_make_cert(const char *folder) {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
    gnutls_datum_t text;

    must(gnutls_x509_privkey_init(&key), "key");
    must(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
         "key");
    must(gnutls_x509_crt_init(&cert), "certificate");
    fill(cert, key);
    must(gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &text), "key");
    write_pem(folder, "key.pem", &text);
    gnutls_free(text.data);
    must(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &text), "certificate");
    write_pem(folder, "cert.pem", &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_privkey_deinit(key);
}
