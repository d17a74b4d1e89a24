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

/* Clients have other ways to learn an address: without the file the daemon is ready. */
static void check_listen_file(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_own_file_is(&daemon->listen_own, daemon->listen_file))
        return;
    if (gb_listen_write(&daemon->listeners, daemon->listen_file, &daemon->listen_own, &why) == 0) {
        gb_log(&daemon->log, daemon->listen_unwritten ? GB_LOG_INFO : GB_LOG_WARNING, "socket",
               "the file %s is written again: it was %s", daemon->listen_file,
               daemon->listen_unwritten ? "not to be had" : "removed or replaced");
        daemon->listen_unwritten = false;
    } else if (!daemon->listen_unwritten) {
        gb_log(&daemon->log, GB_LOG_WARNING, "socket", "the file %s was removed and cannot be written: %s",
               daemon->listen_file, why.detail);
        daemon->listen_unwritten = true;
    }
}

/* *err: why clients cannot reach it. */
static void check_listener(struct gb_daemon *daemon, size_t i, struct gb_error *err) {
    struct gb_feed_listener *listener = &daemon->listeners.items[i];
    struct gb_error why = GB_ERROR_INIT;
    int fd;

    if (gb_listen_again(listener, &fd, &why) != 0)
        gb_error_set(err, GB_ERR_SOCKET_LOST,
                     "the file of the socket %s was removed or replaced, and clients cannot "
                     "reach the daemon there: %s",
                     listener->text, why.detail);
    if (fd < 0)
        return;
    gb_http_server_listen_on(daemon->server, i, fd);
    gb_log(&daemon->log, GB_LOG_WARNING, "socket",
           "the file of the socket %s was removed or replaced: another socket "
           "listens there, and connections go on",
           listener->text);
}

void gb_daemon_check_sockets(struct gb_daemon *daemon) {
    struct gb_error why = GB_ERROR_INIT;
    bool unreachable;
    size_t i;

    check_listen_file(daemon);
    for (i = 0; i < daemon->listeners.count; i++)
        check_listener(daemon, i, &why);
    unreachable = why.code != GB_OK;
    gb_api_set_reach(daemon->api, &why);
    if (unreachable && !daemon->unreachable)
        gb_log(&daemon->log, GB_LOG_ERROR, "socket", "the daemon is not ready: %s", why.detail);
    else if (!unreachable && daemon->unreachable)
        gb_log(&daemon->log, GB_LOG_INFO, "socket", "clients can reach all sockets again");
    daemon->unreachable = unreachable;
}
