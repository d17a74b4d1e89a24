/* The cage as the options have it: what the daemon gives up once it listens. Landlock and the capabilities are of
 * threads, so they go before the first one; the filter of system calls reaches all threads, and goes when all is
 * open and before the first request. The start calls this. */
#ifndef GB_DAEMON_CAGE_ENCLOSE_H
#define GB_DAEMON_CAGE_ENCLOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "daemon/daemon.h"

/* Has the process leave no core dump and take no debugger, unless --core-dumps is given. */
void gb_daemon_hide(const struct gb_daemon *daemon);
/* Gives up capabilities and the files that are not needed any more, as the options say. Before the first thread, after
 * the state directory is found and the sockets are open. */
int gb_daemon_enclose(struct gb_daemon *daemon, struct gb_error *err);
/* Gives up system calls, once the backend is open, and logs what is in force. */
int gb_daemon_filter(struct gb_daemon *daemon, struct gb_error *err);

/* Landlock: from here on the kernel opens only files that rules name, to this thread and those that it starts. Open
 * descriptors stay good, and a memfd or a socket is no file in this sense. enclose.c names the files; paths.def has
 * those of each daemon. */

enum gb_landlock_right {
    GB_LANDLOCK_READ,   /* files, and the names in folders */
    GB_LANDLOCK_RUN,    /* as READ, and to start it as a program */
    GB_LANDLOCK_DEVICE, /* as READ, also to write and to control (ioctl) */
    GB_LANDLOCK_STATE,  /* as READ, also to write, make, resize and remove files and sockets */
    GB_LANDLOCK_SOCKET, /* only to make sockets, and to remove files */
    GB_LANDLOCK_BIND    /* only to make sockets */
};

struct gb_landlock;

/* The version of Landlock that the kernel has; 0: none, or it is switched off. */
int gb_landlock_abi(void);

/* A set of rules that permits nothing: no file, no TCP bind or connect (from version 4) unless
 * connects permits the latter, no signals to processes
 * outside (from version 6), and no abstract UNIX sockets of theirs unless abstract says so. NULL: *err is set. */
struct gb_landlock *gb_landlock_new(bool abstract, bool connects, struct gb_error *err);
/* NULL is accepted. Rules in force stay so. */
void gb_landlock_free(struct gb_landlock *landlock);

/* Permits a file, or a folder with all below it. Files that do not exist are passed over. Keeps what it names from
 * being forgotten by the kernel, which for a part of /proc would end the rule. */
int gb_landlock_permit(struct gb_landlock *landlock, const char *path, enum gb_landlock_right right,
                       struct gb_error *err);

struct gb_cage_file {
    const char *path;
    enum gb_landlock_right right;
};

/* Opens from now on only what files[0..count) and the table paths.def permit. sets: GB_CAGE_CUDA and so on (seccomp.h).
 * *ret_abi: the version in force; 0: this kernel has no Landlock, and nothing is forbidden. */
int gb_cage_files(const struct gb_cage_file *files, size_t count, unsigned sets, int *ret_abi, struct gb_error *err);

#endif
