/* Listening sockets: TCP, UNIX and those that systemd hands in. */
#ifndef GB_DAEMON_LISTEN_H
#define GB_DAEMON_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/text.h"
#include "daemon/options.h"

#define GB_LISTEN_TEXT_SIZE 160
#define GB_LISTEN_MAX 64

/* Who may connect to a UNIX socket. */
struct gb_socket_rights {
    mode_t mode;
    gid_t gid; /* (gid_t)-1: that of the process */
};

/* A file that this process made at a path, or a folder: another one may stand there now. */
struct gb_own_file {
    dev_t dev;
    ino_t ino; /* 0: none was made */
};

struct gb_feed_listener {
    int fd;
    bool is_unix;
    bool is_tls;
    struct gb_own_file file;        /* of a UNIX socket; none: systemd made it */
    struct gb_own_file folder;      /* that it lay in at first */
    struct gb_socket_rights rights; /* of that file */
    bool beyond_loopback;           /* other machines may reach it */
    bool wildcard;                  /* it is of all addresses of the machine */
    struct gb_name network;         /* that it is in; "": a UNIX socket */
    char text[GB_LISTEN_TEXT_SIZE]; /* "127.0.0.1:7070", "[::1]:7070", "tls:127.0.0.1:7443" or "unix:PATH" */
};

/* Zero-initialised is empty. */
struct gb_listeners {
    struct gb_feed_listener items[GB_LISTEN_MAX];
    size_t count;
};

/* Splits "NETWORK=REST". *ret: the network, "default" where none is named. Returns REST, or NULL with
 * INVALID_ARGUMENT. option: for the error. */
const char *gb_listen_network(const char *spec, const char *option, struct gb_name *ret, struct gb_error *err);

/* Opens one TCP socket: "[NETWORK=]ADDR:PORT", "[NETWORK=][ADDR]:PORT" or with localhost as ADDR. Numeric addresses
 * only: no name is looked up. tls: its connections begin with a handshake. INVALID_ARGUMENT for a malformed spec,
 * INTERNAL with errno when the address cannot be had. */
int gb_listen_tcp(struct gb_listeners *listeners, const char *spec, bool tls, struct gb_error *err);

/* Whether such a spec is well-formed. Opens nothing. INVALID_ARGUMENT. */
int gb_listen_check(const char *spec, bool tls, struct gb_error *err);

/* Reads --socket-mode and --socket-group (empty: none). INVALID_ARGUMENT. */
int gb_socket_rights_read(const char *mode, const char *group, struct gb_socket_rights *ret, struct gb_error *err);

/* Opens a UNIX socket. The file appears in one step, with these rights and ready to be connected to; one that a dead
 * daemon left is replaced, one that another process answers on is refused. */
int gb_listen_unix(struct gb_listeners *listeners, const char *path, const struct gb_socket_rights *rights,
                   struct gb_error *err);

/* Looks whether the file of a UNIX socket is still its own, and makes another socket there if it is gone, also in
 * another folder that stands where its own one stood. *ret_fd: that socket, which listens and is to take the place of
 * listener->fd, or -1. INTERNAL: clients cannot connect, and why. */
int gb_listen_again(struct gb_feed_listener *listener, int *ret_fd, struct gb_error *err);

/* Whether this file stands at the path. Removes it if so. */
bool gb_own_file_is(const struct gb_own_file *file, const char *path);
void gb_own_file_remove(const struct gb_own_file *file, const char *path);

/* Takes over a descriptor that already listens (socket activation). */
int gb_listen_adopt(struct gb_listeners *listeners, int fd, struct gb_error *err);

/* True when one of them can be reached from another machine; *ret_text names it. */
bool gb_listen_beyond_loopback(const struct gb_listeners *listeners, const char **ret_text);

/* Writes the texts one a line to PATH, in one step. */
int gb_listen_write(const struct gb_listeners *listeners, const char *path, struct gb_own_file *ret,
                    struct gb_error *err);

/* close: also closes the descriptors (before the server has them). Removes the files of the UNIX sockets that are
 * theirs. */
void gb_listen_done(struct gb_listeners *listeners, bool close_fds);

#endif
