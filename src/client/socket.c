/* Explains a refused UNIX socket: its owner, and the permission that it needs. */
#include "client/socket.h"

#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_BYTES 4096

/* "998 (gpubuf)", or the number alone where it has no name here. */
static void group_text(gid_t gid, char *ret, size_t size) {
    char room[GROUP_BYTES];
    struct group group;
    struct group *found = NULL;

    if (getgrgid_r(gid, &group, room, sizeof(room), &found) == 0 && found)
        snprintf(ret, size, "%u (%s)", (unsigned)gid, group.gr_name);
    else
        snprintf(ret, size, "%u", (unsigned)gid);
}

/* The first folder on the way that this process may not search; false where there is none. */
static bool closed_folder(const char *path, char *ret, size_t size) {
    const char *at = path;

    while ((at = strchr(at + 1, '/')) != NULL) {
        snprintf(ret, size, "%.*s", (int)(at - path), path);
        if (access(ret, X_OK) != 0)
            return true;
    }
    return false;
}

void gbc_socket_refusal(const char *path, char *ret, size_t size) {
    char folder[256];
    char group[64];
    struct stat st;

    if (closed_folder(path, folder, sizeof(folder))) {
        if (stat(folder, &st) < 0) {
            snprintf(ret, size, "user %u may not search the folder %s", (unsigned)geteuid(), folder);
            return;
        }
        group_text(st.st_gid, group, sizeof(group));
        snprintf(ret, size,
                 "user %u may not search the folder %s, of mode %04o, user %u and group %s: put the socket elsewhere "
                 "(gpubufd --socket PATH), or open the folder",
                 (unsigned)geteuid(), folder, (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid, group);
        return;
    }
    if (stat(path, &st) < 0) {
        snprintf(ret, size, "user %u may not reach it", (unsigned)geteuid());
        return;
    }
    group_text(st.st_gid, group, sizeof(group));
    snprintf(ret, size,
             "it is of mode %04o, user %u and group %s, and this is user %u, who needs the right to write: join the "
             "group, or start gpubufd with --socket-group and --socket-mode",
             (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid, group, (unsigned)geteuid());
}
