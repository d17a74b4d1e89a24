/* Listening sockets. A UNIX socket appears in one step, with its rights, and is made again if its file is gone. wire.c
 * opens them at the start and has them checked while the daemon serves. */
#include "daemon/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"

#define BACKLOG 4096

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
    struct sockaddr_storage storage;
};

static struct gb_feed_listener *next_slot(struct gb_listeners *listeners, struct gb_error *err) {
    if (listeners->count == GB_LISTEN_MAX) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "more than %d listening addresses", GB_LISTEN_MAX);
        return NULL;
    }
    listeners->items[listeners->count] = (struct gb_feed_listener){.fd = -1};
    return &listeners->items[listeners->count];
}

static int bad_spec(const char *spec, bool tls, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "--%s: \"%.80s\" is not permitted; permitted: ADDR:PORT or [ADDR]:PORT with a numeric "
                        "address and a port from 0 to 65535%s",
                        tls ? "tls-listen" : "listen", spec, tls ? "" : ", or none");
}

static int parse_spec(const char *spec, bool tls, union address *ret, socklen_t *ret_len, struct gb_error *err) {
    const char *colon = strrchr(spec, ':');
    union address a = {.storage = {0}};
    uint64_t port;
    char host[64];
    size_t n;

    if (!colon || gb_parse_u64(colon + 1, strlen(colon + 1), &port) != GB_PARSE_OK || port > 65535)
        return bad_spec(spec, tls, err);
    n = (size_t)(colon - spec);
    if (n >= sizeof(host))
        return bad_spec(spec, tls, err);
    if (n >= 2 && spec[0] == '[' && spec[n - 1] == ']') {
        memcpy(host, spec + 1, n - 2);
        host[n - 2] = '\0';
        a.in6.sin6_family = AF_INET6;
        a.in6.sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host, &a.in6.sin6_addr) != 1)
            return bad_spec(spec, tls, err);
        *ret_len = sizeof(a.in6);
    } else {
        memcpy(host, spec, n);
        host[n] = '\0';
        a.in.sin_family = AF_INET;
        a.in.sin_port = htons((uint16_t)port);
        if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &a.in.sin_addr) != 1)
            return bad_spec(spec, tls, err);
        *ret_len = sizeof(a.in);
    }
    *ret = a;
    return 0;
}

static bool is_loopback(const union address *a) {
    static const unsigned char mapped[13] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};

    if (a->any.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr) || memcmp(&a->in6.sin6_addr, mapped, sizeof(mapped)) == 0;
}

static bool is_wildcard(const union address *a) {
    if (a->any.sa_family == AF_INET)
        return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

const char *gb_listen_network(const char *spec, const char *option, struct gb_name *ret, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    size_t n = strcspn(spec, "=/:[");

    *ret = (struct gb_name){"default"};
    if (spec[n] != '=')
        return spec;
    if (gb_name_parse("name of the network", spec, n, ret, &why) == 0)
        return spec + n + 1;
    gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: \"%.80s\": %.200s", option, spec, why.detail);
    return NULL;
}

/* Fills what a listener says of itself from its socket's own address. */
static int describe(struct gb_feed_listener *listener, struct gb_error *err) {
    union address a = {.storage = {0}};
    socklen_t len = sizeof(a);
    char host[INET6_ADDRSTRLEN];

    if (getsockname(listener->fd, &a.any, &len) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "getsockname", errno);
    switch (a.any.sa_family) {
    case AF_UNIX:
        listener->is_unix = true;
        snprintf(listener->text, sizeof(listener->text), "unix:%.*s", (int)sizeof(a.un.sun_path), a.un.sun_path);
        return 0;
    case AF_INET:
        inet_ntop(AF_INET, &a.in.sin_addr, host, sizeof(host));
        snprintf(listener->text, sizeof(listener->text), "%s%s:%u", listener->is_tls ? "tls:" : "", host,
                 ntohs(a.in.sin_port));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof(host));
        snprintf(listener->text, sizeof(listener->text), "%s[%s]:%u", listener->is_tls ? "tls:" : "", host,
                 ntohs(a.in6.sin6_port));
        break;
    default:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a listening socket of family %d is of no use here",
                            a.any.sa_family);
    }
    listener->beyond_loopback = !is_loopback(&a);
    listener->wildcard = is_wildcard(&a);
    return 0;
}

int gb_listen_check(const char *spec, bool tls, struct gb_error *err) {
    struct gb_name network;
    union address a;
    socklen_t len;
    const char *address = gb_listen_network(spec, tls ? "tls-listen" : "listen", &network, err);

    return address ? parse_spec(address, tls, &a, &len, err) : -1;
}

int gb_listen_tcp(struct gb_listeners *listeners, const char *spec, bool tls, struct gb_error *err) {
    struct gb_feed_listener *listener = next_slot(listeners, err);
    const char *address;
    struct gb_name network;
    const char *call = "socket";
    union address a;
    socklen_t len = 0;
    int yes = 1;
    int fd;

    address = gb_listen_network(spec, tls ? "tls-listen" : "listen", &network, err);
    if (!listener || !address || parse_spec(address, tls, &a, &len, err) != 0)
        return -1;
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        goto fail;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (a.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    call = "bind";
    if (bind(fd, &a.any, len) != 0)
        goto fail;
    call = "listen";
    if (listen(fd, BACKLOG) != 0)
        goto fail;
    listener->fd = fd;
    listener->is_tls = tls;
    listener->network = network;
    if (describe(listener, err) != 0) {
        close(fd);
        return -1;
    }
    listeners->count++;
    return 0;

fail:
    gb_error_errno(err, GB_ERR_INTERNAL, call, errno);
    snprintf(err->detail, sizeof(err->detail), "cannot listen on %.80s: %s%s", spec, strerror(errno),
             errno != EADDRINUSE ? ""
             : tls               ? "; give another port with --tls-listen"
                                 : "; give another port with --listen");
    if (fd >= 0)
        close(fd);
    return -1;
}

bool gb_own_file_is(const struct gb_own_file *file, const char *path) {
    struct stat st;

    return file->ino != 0 && lstat(path, &st) == 0 && st.st_dev == file->dev && st.st_ino == file->ino;
}

void gb_own_file_remove(const struct gb_own_file *file, const char *path) {
    if (gb_own_file_is(file, path))
        unlink(path);
}

/* 1: a process answers on the socket; 0: none does, or there is no such file; -1: the path is not a socket. */
static int answers(const struct sockaddr_un *a) {
    struct stat st;
    int r = 0;
    int fd;

    if (lstat(a->sun_path, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    /* A full backlog (EAGAIN) is an answer as well. */
    if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno == EAGAIN)
        r = 1;
    close(fd);
    return r;
}

/* The file gets its rights as it is made: in the cage none can be given to a path. The mask of the process lets them
 * through for this moment; the other files that may be made in it are of modes that it does not touch. */
static int bind_with(int fd, const struct sockaddr_un *a, mode_t mode) {
    mode_t mask = umask(0);
    int r;

    umask(mask & ~mode);
    r = fchmod(fd, mode);
    if (r == 0)
        r = bind(fd, (const struct sockaddr *)a, sizeof(*a));
    umask(mask);
    return r;
}

/* beside: bound under another name and renamed when it listens, so that no client finds a socket that refuses. */
static int bind_at(int fd, const char *path, bool beside, const struct gb_socket_rights *rights,
                   struct gb_own_file *ret, struct gb_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *call = "bind";
    struct stat st;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s%s", path, beside ? "~" : "");
    if (answers(&a) == 0)
        unlink(a.sun_path);
    if (bind_with(fd, &a, rights->mode) != 0)
        goto fail;
    call = "chown";
    if (rights->gid != (gid_t)-1 && chown(a.sun_path, (uid_t)-1, rights->gid) != 0)
        goto fail;
    call = "listen";
    if (listen(fd, BACKLOG) != 0)
        goto fail;
    call = "rename";
    if (lstat(a.sun_path, &st) != 0 || (beside && rename(a.sun_path, path) != 0))
        goto fail;
    *ret = (struct gb_own_file){st.st_dev, st.st_ino};
    return 0;

fail:
    gb_error_errno(err, GB_ERR_INTERNAL, call, errno);
    if (strcmp(call, "chown") == 0)
        snprintf(err->detail, sizeof(err->detail),
                 "--socket-group: unix:%.108s cannot be given to group %u: %s; only root gives away, others to groups "
                 "that they are in",
                 path, (unsigned)rights->gid, strerror(errno));
    else
        snprintf(err->detail, sizeof(err->detail), "cannot listen on unix:%.108s: %s", path, strerror(errno));
    if (strcmp(call, "bind") != 0)
        unlink(a.sun_path);
    return -1;
}

/* Returns a socket that listens at the path, or -1. */
static int open_unix(const char *path, bool beside, const struct gb_socket_rights *rights, struct gb_own_file *ret,
                     struct gb_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int taken;
    int fd;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    taken = answers(&a);
    if (taken != 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "cannot listen on unix:%.108s: %s", path,
                            taken > 0 ? "another process answers there" : "a file that is no socket stands there");
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socket", errno);
    gb_take_no_descriptors(fd); /* here too: a client may send before its connection is accepted */
    if (bind_at(fd, path, beside, rights, ret, err) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct gb_own_file folder_of(const char *path) {
    char folder[GB_LISTEN_TEXT_SIZE];
    char *slash;
    struct stat st;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    if (stat(slash ? folder : ".", &st) != 0)
        return (struct gb_own_file){.ino = 0};
    return (struct gb_own_file){st.st_dev, st.st_ino};
}

int gb_listen_again(struct gb_feed_listener *listener, int *ret_fd, struct gb_error *err) {
    const char *path = listener->text + strlen("unix:");
    struct gb_own_file folder;
    bool beside;

    *ret_fd = -1;
    if (listener->file.ino == 0 || gb_own_file_is(&listener->file, path))
        return 0;
    folder = folder_of(path);
    /* In another folder than at first the cage lets sockets be made, and nothing be renamed or removed. */
    beside = folder.dev == listener->folder.dev && folder.ino == listener->folder.ino;
    *ret_fd = open_unix(path, beside, &listener->rights, &listener->file, err);
    return *ret_fd < 0 ? -1 : 0;
}

int gb_listen_unix(struct gb_listeners *listeners, const char *path, const struct gb_socket_rights *rights,
                   struct gb_error *err) {
    struct gb_feed_listener *listener = next_slot(listeners, err);
    const size_t longest = sizeof((struct sockaddr_un *)NULL)->sun_path - 2; /* the end, and the name beside it */

    if (!listener)
        return -1;
    if (strlen(path) > longest)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--socket: the path is longer than %zu bytes, which UNIX sockets do not permit: name a "
                            "shorter one with --socket PATH, or --socket none",
                            longest);
    listener->fd = open_unix(path, true, rights, &listener->file, err);
    if (listener->fd < 0)
        return -1;
    listener->folder = folder_of(path);
    listener->is_unix = true;
    listener->rights = *rights;
    snprintf(listener->text, sizeof(listener->text), "unix:%s", path);
    listeners->count++;
    return 0;
}

int gb_listen_adopt(struct gb_listeners *listeners, int fd, struct gb_error *err) {
    struct gb_feed_listener *listener = next_slot(listeners, err);
    int flags;

    if (!listener)
        return -1;
    /* An inherited socket may be blocking, and then one accept too many would stop a whole loop. */
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "fcntl", errno);
    listener->fd = fd;
    if (describe(listener, err) != 0)
        return -1;
    if (listener->is_unix)
        gb_take_no_descriptors(fd);
    else
        listener->network = (struct gb_name){"default"};
    listeners->count++;
    return 0;
}

bool gb_listen_beyond_loopback(const struct gb_listeners *listeners, const char **ret_text) {
    size_t i;

    for (i = 0; i < listeners->count; i++) {
        if (listeners->items[i].beyond_loopback) {
            *ret_text = listeners->items[i].text;
            return true;
        }
    }
    return false;
}

int gb_listen_write(const struct gb_listeners *listeners, const char *path, struct gb_own_file *ret,
                    struct gb_error *err) {
    char *beside = NULL;
    struct stat st;
    FILE *out = NULL;
    int r = -1;
    size_t i;

    if (asprintf(&beside, "%s~", path) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    out = fopen(beside, "we");
    if (!out) {
        gb_error_errno(err, GB_ERR_INTERNAL, "fopen", errno);
        goto out;
    }
    for (i = 0; i < listeners->count; i++)
        fprintf(out, "%s\n", listeners->items[i].text);
    r = ferror(out) || fstat(fileno(out), &st) != 0 ? -1 : 0;
    if (fclose(out) != 0 || r != 0 || rename(beside, path) != 0) {
        r = gb_error_errno(err, GB_ERR_INTERNAL, "rename", errno);
        unlink(beside);
    } else {
        *ret = (struct gb_own_file){st.st_dev, st.st_ino};
    }
out:
    free(beside);
    return r;
}

void gb_listen_done(struct gb_listeners *listeners, bool close_fds) {
    size_t i;

    for (i = 0; i < listeners->count; i++) {
        gb_own_file_remove(&listeners->items[i].file, listeners->items[i].text + strlen("unix:"));
        if (close_fds)
            close(listeners->items[i].fd);
    }
    listeners->count = 0;
}

/* --- who may connect to a UNIX socket ----------------------------------------------------------------------------- */

#define GROUP_BYTES 16384

static int read_mode(const char *text, mode_t *ret, struct gb_error *err) {
    size_t n = strlen(text);

    if (n == 0 || n > 4 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > 0777)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "--socket-mode: \"%.64s\" is not permitted; permitted: an octal number from 0 to 0777, such "
            "as 0660",
            text);
    *ret = (mode_t)strtoul(text, NULL, 8);
    return 0;
}

/* A number is taken as it is: the group may be one of containers that has no name here. */
static int read_group(const char *text, gid_t *ret, struct gb_error *err) {
    char room[GROUP_BYTES];
    struct group group;
    struct group *found = NULL;
    uint64_t number;

    if (gb_parse_u64(text, strlen(text), &number) == GB_PARSE_OK && number < UINT32_MAX) {
        *ret = (gid_t)number;
        return 0;
    }
    if (getgrnam_r(text, &group, room, sizeof(room), &found) != 0 || !found)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--socket-group: there is no group \"%.64s\" on this machine; name one of getent group, or "
                            "give its number",
                            text);
    *ret = group.gr_gid;
    return 0;
}

int gb_socket_rights_read(const char *mode, const char *group, struct gb_socket_rights *ret, struct gb_error *err) {
    struct gb_socket_rights rights = {.gid = (gid_t)-1};

    if (read_mode(mode, &rights.mode, err) != 0 || (group[0] != '\0' && read_group(group, &rights.gid, err) != 0))
        return -1;
    *ret = rights;
    return 0;
}
