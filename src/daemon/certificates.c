/* Certificates of the listeners for TLS: read at the start, and again when a file looks other than before. What is in
 * force stays until all files can be read. */
#include "daemon/certificates.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "http/tls/context.h"

/* --- what the kernel offers --------------------------------------------------------------------------------------- */

/* The upper protocols that sockets may be given at present: words between spaces. Modules that are not loaded are not
 * among them; to ask a socket for the protocol instead would load one, if the process may. */
#define AVAILABLE "/proc/sys/net/ipv4/tcp_available_ulp"

bool gb_daemon_kernel_tls(const char *root) {
    char path[256];
    char word[32];
    bool found = false;
    FILE *file;

    snprintf(path, sizeof(path), "%s" AVAILABLE, root);
    file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fscanf(file, "%31s", word) == 1)
        found = strcmp(word, "tls") == 0;
    fclose(file);
    return found;
}

/* --- the files ---------------------------------------------------------------------------------------------------- */

#define PAIRS_MAX 32
#define DAY_S 86400
#define SOON_S (14 * DAY_S)

static int wrong(struct gb_error *err, const char *text) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s", text);
}

static int check_together(const struct gb_options *o, struct gb_error *err) {
    if (o->tls_listen.count > 0 && o->tls_cert.count == 0)
        return wrong(err, "--tls-listen needs a certificate: give --tls-cert FILE and --tls-key FILE");
    if (o->tls_listen.count == 0 && (o->tls_cert.count > 0 || o->tls_key.count > 0 || o->tls_client_ca[0]))
        return wrong(err, "--tls-cert, --tls-key and --tls-client-ca are of no use without --tls-listen ADDR:PORT");
    if (o->tls_cert.count != o->tls_key.count)
        return wrong(err, "each --tls-cert goes with one --tls-key, in the same order");
    if (o->tls_cert.count > PAIRS_MAX)
        return wrong(err, "more than 32 certificates");
    return 0;
}

static int read_context(const struct gb_options *o, struct gb_tls_context **ret, struct gb_error *err) {
    struct gb_tls_pair_files pairs[PAIRS_MAX];
    struct gb_tls_config config = {.pairs = pairs, .pair_count = o->tls_cert.count};
    size_t i;

    for (i = 0; i < o->tls_cert.count; i++)
        pairs[i] = (struct gb_tls_pair_files){.cert = o->tls_cert.items[i], .key = o->tls_key.items[i]};
    if (o->tls_client_ca[0] != '\0')
        config.client_ca = o->tls_client_ca;
    return gb_tls_context_new(&config, ret, err);
}

int gb_daemon_try_tls(const struct gb_options *o, struct gb_error *err) {
    struct gb_tls_context *context;
    int r = check_together(o, err);

    if (r == 0 && o->tls_listen.count > 0) {
        r = read_context(o, &context, err);
        if (r == 0)
            gb_tls_context_unref(context);
    }
    return r;
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static uint64_t add_file(uint64_t hash, const char *path) {
    struct stat st = {.st_size = 0};
    char text[128];
    const char *at;

    if (path[0] == '\0' || stat(path, &st) != 0)
        st.st_size = -1;
    snprintf(text, sizeof(text), "%lld %lld %lld.%09ld;", (long long)st.st_ino, (long long)st.st_size,
             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    for (at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

static void look(const struct gb_options *o, char *ret, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    size_t i;

    for (i = 0; i < o->tls_cert.count; i++)
        hash = add_file(add_file(hash, o->tls_cert.items[i]), o->tls_key.items[i]);
    hash = add_file(hash, o->tls_client_ca);
    snprintf(ret, size, "%016llx", (unsigned long long)hash);
}

static void log_expiry_of(const struct gb_daemon *daemon, const char *file, int64_t expiry_s) {
    int64_t left_s = expiry_s - (int64_t)time(NULL);
    char at[GB_RFC3339_SIZE];

    gb_rfc3339(expiry_s * 1000000, at);
    if (left_s <= 0)
        gb_log(&daemon->log, GB_LOG_ERROR, "tls", "%s: the certificate has expired at %s; clients refuse it", file, at);
    else if (left_s < SOON_S)
        gb_log(&daemon->log, GB_LOG_WARNING, "tls", "%s: the certificate expires in %lld %s, at %s", file,
               (long long)(left_s < DAY_S ? left_s / 3600 : left_s / DAY_S), left_s < DAY_S ? "hours" : "days", at);
}

static void log_expiry(const struct gb_daemon *daemon) {
    const struct gb_text_list *files = &daemon->options.tls_cert;
    size_t i;

    for (i = 0; i < files->count; i++)
        log_expiry_of(daemon, files->items[i], gb_tls_context_expiry(daemon->tls, i));
}

int gb_daemon_open_tls(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (check_together(o, err) != 0)
        return -1;
    if (o->tls_listen.count == 0)
        return 0;
    look(o, daemon->tls_seen, sizeof(daemon->tls_seen));
    if (read_context(o, &daemon->tls, err) != 0)
        return -1;
    log_expiry(daemon);
    return 0;
}

void gb_daemon_reload_tls(struct gb_daemon *daemon, bool asked) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_tls_context *fresh;
    char seen[sizeof(daemon->tls_seen)];

    if (!daemon->tls)
        return;
    look(&daemon->options, seen, sizeof(seen));
    if (!asked && strcmp(seen, daemon->tls_seen) == 0)
        return;
    /* A file that is being written is read when it is whole: its time changes again. */
    memcpy(daemon->tls_seen, seen, sizeof(seen));
    if (read_context(&daemon->options, &fresh, &err) != 0) {
        gb_log(&daemon->log, GB_LOG_ERROR, "tls", "the certificates in force stay: %s", err.detail);
        return;
    }
    gb_http_server_tls(daemon->server, fresh);
    gb_tls_context_unref(daemon->tls);
    daemon->tls = fresh;
    gb_log(&daemon->log, GB_LOG_INFO, "tls", "certificates were read again; new connections begin with them");
    log_expiry(daemon);
}
