/* Which sockets: those that systemd hands in, and those that the options name. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/daemon.h"
#include "daemon/state_dir.h"
#include "daemon/systemd.h"

static bool has_kind(const struct gb_listeners *listeners, bool is_unix) {
    size_t i;

    for (i = 0; i < listeners->count; i++)
        if (listeners->items[i].is_unix == is_unix)
            return true;
    return false;
}

static int listen_tcp(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_text_list *specs = &daemon->options.listen;
    size_t i;
    /* A socket unit replaces the default address, not one that was asked for. */
    bool replaced =
        daemon->options.source[GB_OPTION_ID_listen] == GB_SOURCE_DEFAULT && has_kind(&daemon->listeners, false);

    for (i = 0; i < specs->count && !replaced; i++)
        if (strcmp(specs->items[i], "none") != 0 && gb_listen_tcp(&daemon->listeners, specs->items[i], false, err) != 0)
            return -1;
    specs = &daemon->options.tls_listen;
    for (i = 0; i < specs->count; i++)
        if (gb_listen_tcp(&daemon->listeners, specs->items[i], true, err) != 0)
            return -1;
    return 0;
}

/* A socket for others in a folder that only the daemon's user may search is of no use to them. */
static void warn_closed(struct gb_daemon *daemon, const char *path) {
    const struct gb_options *o = &daemon->options;
    struct stat st;

    if (o->source[GB_OPTION_ID_socket_mode] == GB_SOURCE_DEFAULT && o->socket_group[0] == '\0')
        return;
    if (stat(daemon->state_dir, &st) == 0 && (st.st_mode & 0011) == 0)
        gb_log(&daemon->log, GB_LOG_WARNING, "socket",
               "others may not search the state directory, which %s is in: name another place with --socket PATH, or "
               "open the directory (chmod o+x)",
               path);
}

static int listen_unix(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    const char *given = o->socket;
    struct gb_error own = GB_ERROR_INIT;
    struct gb_socket_rights rights;
    char *path;
    int rc;

    if (gb_socket_rights_read(o->socket_mode, o->socket_group, &rights, err) != 0)
        return -1;
    if (strcmp(given, "none") == 0)
        return 0;
    if (given[0] != '\0')
        return gb_listen_unix(&daemon->listeners, given, &rights, err);
    if (has_kind(&daemon->listeners, true))
        return 0;
    path = gb_state_path(daemon->state_dir, "gpubufd.sock");
    if (path == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    rc = gb_listen_unix(&daemon->listeners, path, &rights, &own);
    if (rc == 0)
        warn_closed(daemon, path);
    free(path);
    /* This socket is a default: a state directory with a long name must not keep the daemon from starting. */
    if (rc != 0 && own.code == GB_ERR_INVALID_ARGUMENT) {
        gb_log(&daemon->log, GB_LOG_WARNING, "socket", "no UNIX socket: %s", own.detail);
        return 0;
    }
    if (rc != 0)
        *err = own;
    return rc;
}

int gb_daemon_listen(struct gb_daemon *daemon, struct gb_error *err) {
    int first = 0;
    int n = gb_systemd_sockets(&first);
    int fd;

    for (fd = first; fd < first + n; fd++)
        if (gb_listen_adopt(&daemon->listeners, fd, err) != 0)
            return -1;
    if (listen_tcp(daemon, err) != 0 || listen_unix(daemon, err) != 0)
        return -1;
    if (daemon->listeners.count == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--listen none and --socket none leave nothing to listen on");
    return 0;
}
