/* Clients: what they talk to, and their ends. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/client.h"
#include "client/epochs.h"
#include "client/trust.h"
#include "client/unix_conn.h"
#include "curl/client.h"

#define CONNECT_S 10
#define ANSWER_S 120
#define STALL_S 60
#define RETRIES 2
#define DEFAULT_PORT "7070"
#define DEFAULT_URL "http://127.0.0.1:" DEFAULT_PORT
#define UNIX "unix://"

const char *gpubuf_version(void) {
    return GBC_VERSION;
}

static const char *environment(const char *name) {
    const char *value = getenv(name);

    return value && value[0] != '\0' ? value : NULL;
}

/* --- the socket of a daemon on this machine ----------------------------------------------------------------------- */

static char *if_socket(char *path) {
    struct stat st;

    if (path && stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        return path;
    free(path);
    return NULL;
}

static char *below(const char *folder, const char *rest) {
    char *path;

    return folder && asprintf(&path, "%s%s", folder, rest) >= 0 ? path : NULL;
}

/* Where gpubufd puts it unless told otherwise, this user's own first; NULL where there is none. */
static char *find_socket(void) {
    char *path = if_socket(below(environment("XDG_STATE_HOME"), "/gpubufd/gpubufd.sock"));

    if (!path)
        path = if_socket(below(environment("HOME"), "/.local/state/gpubufd/gpubufd.sock"));
    if (!path)
        path = if_socket(strdup("/run/gpubufd.sock"));
    if (!path)
        path = if_socket(strdup("/var/lib/gpubufd/gpubufd.sock"));
    return path;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* A name may begin with 127. and lie anywhere: only addresses count, and the one name that stays on the machine. */
bool gbc_is_loopback(const char *url) {
    const char *host = strstr(url, "://") + 3;
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, "/:?");
    unsigned char address[4];
    char text[64];

    if (n >= sizeof(text))
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, address) == 1)
        return address[0] == 127;
    return strcmp(text, "[::1]") == 0 || strcasecmp(text, "localhost") == 0;
}

static int take_unix(struct gbc_settings *set, struct gpubuf_error *err) {
    const char *path = set->url + strlen(UNIX);

    if (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "%s: a UNIX socket is unix:///PATH with at most 107 bytes of path", set->url);
    set->base = strdup("http://localhost");
    set->socket = strdup(path);
    set->local = true;
    return set->base && set->socket ? 0 : gbc_error_memory(err);
}

static int take_http(struct gbc_settings *set, struct gpubuf_error *err) {
    const char *host = strstr(set->url, "://");
    size_t n;

    if (strchr(set->url, '@')) /* and what stands before it is not repeated */
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "an address has no user and no password before an \"@\": give HOST:PORT, and a token by "
                             "--token-file or GPUBUF_TOKEN");
    if ((strncmp(set->url, "http://", 7) != 0 && strncmp(set->url, "https://", 8) != 0) || !host || host[3] == '\0' ||
        strpbrk(set->url, "?#@ \r\n"))
        return gbc_error_set(
            err, GPUBUF_BAD_ARGUMENT,
            "\"%s\" is no address of a daemon: give [http://]HOST:PORT, https://HOST:PORT or unix:///PATH", set->url);
    n = strlen(set->url);
    while (set->url[n - 1] == '/')
        n--;
    set->base = strndup(set->url, n);
    if (!set->base)
        return gbc_error_memory(err);
    set->local = gbc_is_loopback(set->base);
    set->tls = strncmp(set->base, "https://", 8) == 0;
    return 0;
}

/* HOST or HOST:PORT, by which people mean http, and without a port the daemon's own. Nothing that could be a path or
 * half a URL. */
static bool lacks_scheme(const char *url, size_t *ret_host) {
    size_t n = url[0] == '[' ? strspn(url + 1, "0123456789abcdefABCDEF:.") + 1
                             : strspn(url, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_");

    if (n == 0 || strchr(".-_", url[0]) || (url[0] == '[' && url[n++] != ']'))
        return false;
    *ret_host = n;
    if (url[n] == ':') {
        size_t digits = strspn(url + n + 1, "0123456789");

        if (digits == 0)
            return false;
        n += 1 + digits;
    }
    n += url[n] == '/';
    return url[n] == '\0';
}

static char *with_scheme(const char *url, size_t host) {
    char *whole;
    int n = asprintf(&whole, "http://%.*s%s", (int)host, url, url[host] == ':' ? url + host : ":" DEFAULT_PORT);

    return n >= 0 ? whole : NULL;
}

/* The address, or the socket that was named, or one that is found, or the usual address. */
static int take_url(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    const char *url = options->url ? options->url : environment("GPUBUF_URL");
    const char *named = options->socket ? options->socket : environment("GPUBUF_SOCKET");
    char *path = url ? NULL : named ? strdup(named) : find_socket();
    size_t host;

    if (url)
        set->url = lacks_scheme(url, &host) ? with_scheme(url, host) : strdup(url);
    else if (path && strncmp(path, UNIX, strlen(UNIX)) == 0)
        set->url = strdup(path);
    else
        set->url = path ? below(UNIX, path) : strdup(DEFAULT_URL);
    free(path);
    if (!set->url)
        return gbc_error_memory(err);
    return strncmp(set->url, UNIX, strlen(UNIX)) == 0 ? take_unix(set, err) : take_http(set, err);
}

static int take_socket(struct gbc_settings *set, const char *given, struct gpubuf_error *err) {
    const char *path = given ? given : environment("GPUBUF_SOCKET");

    if (!given && set->socket)
        path = set->socket;
    if (path && strncmp(path, UNIX, strlen(UNIX)) == 0)
        path += strlen(UNIX);
    if (path && (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "\"%s\" is no UNIX socket: give its whole path of at most 107 bytes", path);
    if (path && !(set->map_socket = strdup(path)))
        return gbc_error_memory(err);
    if (!path && set->local)
        set->map_socket = find_socket();
    return 0;
}

/* A machine on the way of plain http reads the token along, so that http is good for it within this machine alone. */
static int check_token_road(const struct gbc_settings *set, bool permitted, struct gpubuf_error *err) {
    const char *word = environment("GPUBUF_PLAIN_TOKEN");

    if (set->tls || set->local || permitted || (word && strcmp(word, "1") == 0))
        return 0;
    return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                         "the token is not sent over plain http to %s, which may be another machine: use https://, or "
                         "permit it with --plain-token or GPUBUF_PLAIN_TOKEN=1",
                         set->url);
}

static int take_token(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    const char *token = options->token ? options->token : environment("GPUBUF_TOKEN");

    if (!token || token[0] == '\0')
        return 0;
    if (strpbrk(token, " \t\r\n"))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a token has no blanks or ends of line");
    set->token = strdup(token);
    return set->token ? check_token_road(set, options->plain_token, err) : gbc_error_memory(err);
}

static uint64_t ms_of(uint32_t seconds, uint32_t otherwise) {
    return (uint64_t)(seconds > 0 ? seconds : otherwise) * 1000;
}

static int take(struct gbc_settings *set, const struct gpubuf_options *options, struct gpubuf_error *err) {
    set->connect_ms = ms_of(options->connect_timeout_s, CONNECT_S);
    set->answer_ms = ms_of(options->answer_timeout_s, ANSWER_S);
    set->stall_ms = ms_of(options->stall_timeout_s, STALL_S);
    set->retries = options->retries > 0 ? options->retries : RETRIES;
    if (options->retries == UINT32_MAX)
        set->retries = 0;
    set->trace = options->trace;
    set->trace_arg = options->trace_arg;
    set->agent = strdup(options->user_agent ? options->user_agent : "libgpubuf/" GBC_VERSION);
    if (!set->agent)
        return gbc_error_memory(err);
    if (strpbrk(set->agent, "\r\n"))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "user_agent has one line");
    if (take_url(set, options, err) < 0 || take_socket(set, options->socket, err) < 0 ||
        (set->tls && gbc_trust_take(set, options, err) < 0))
        return -1;
    if (!set->tls) /* a node of a fleet may redirect to https; files that cannot be used matter only then */
        gbc_trust_take(set, options, NULL);
    return take_token(set, options, err);
}

static void settings_done(struct gbc_settings *set) {
    free(set->url);
    free(set->base);
    free(set->socket);
    free(set->map_socket);
    gbc_trust_done(set);
    free(set->token);
    free(set->agent);
    gbc_epochs_unref(set->epochs);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

int gpubuf_open(const struct gpubuf_options *options, gpubuf_client **ret, struct gpubuf_error *err) {
    static const struct gpubuf_options none;
    struct gpubuf_client *client;

    gbc_error_init(err);
    client = calloc(1, sizeof(*client));
    if (!client)
        return gbc_error_memory(err);
    if (gb_http_begin() < 0) {
        free(client);
        return gbc_error_memory(err);
    }
    client->set.epochs = gbc_epochs_new();
    if (!client->set.epochs) {
        gpubuf_close(client);
        return gbc_error_memory(err);
    }
    if (take(&client->set, options ? options : &none, err) < 0 || !(client->conn = gbc_conn_new(&client->set, err))) {
        gpubuf_close(client);
        return -1;
    }
    gbc_answer_clear(client);
    *ret = client;
    return 0;
}

void gpubuf_close(gpubuf_client *client) {
    if (!client)
        return;
    gbc_link_leave(client->link);
    gbc_conn_free(client->conn);
    settings_done(&client->set);
    free(client);
    gb_http_end();
}

const char *gpubuf_url(const gpubuf_client *client) {
    return client->set.url;
}

const char *gpubuf_socket(const gpubuf_client *client) {
    return client->set.map_socket;
}

void gpubuf_interrupt(gpubuf_client *client) {
    atomic_store(&client->set.interrupted, 1);
}

void gpubuf_resume(gpubuf_client *client) {
    atomic_store(&client->set.interrupted, 0);
}

const struct gpubuf_answer *gpubuf_answer_of(const gpubuf_client *client) {
    return &client->answer;
}
