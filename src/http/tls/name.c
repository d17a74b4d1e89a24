/* The names of certificates, and which certificate is that of the name that a client asks for. */
#include <stdlib.h>
#include <string.h>

#include "http/tls/internal.h"

#define NAME_SIZE 256

static const struct gb_tls_named *find(const struct gb_tls_context *context, const char *name, unsigned flags) {
    size_t i;

    for (i = 0; i < context->named_count; i++) {
        if (gnutls_x509_crt_check_hostname2(context->named[i].cert, name, flags))
            return &context->named[i];
    }
    return NULL;
}

static int add_name(struct gb_http_names *names, const char *bytes, size_t n) {
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

int gb_tls_add_names(struct gb_tls_context *context, gnutls_x509_crt_t cert) {
    char name[NAME_SIZE];
    unsigned i;
    int type = 0;

    /* A name that finds no room is longer than DNS permits. */
    for (i = 0; type >= 0 || type == GNUTLS_E_SHORT_MEMORY_BUFFER; i++) {
        size_t n = sizeof(name);

        type = gnutls_x509_crt_get_subject_alt_name(cert, i, name, &n, NULL);
        if (type == GNUTLS_SAN_DNSNAME && add_name(&context->names, name, n) < 0)
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
