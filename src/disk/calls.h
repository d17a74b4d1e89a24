/* The system calls of this layer, each behind the rules of --disk-fault. They answer as the call itself does, -1 with
 * errno, and continue after EINTR. plan: NULL if there are no rules. [any thread] */
#ifndef GB_DISK_CALLS_H
#define GB_DISK_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "disk/faults.h"

/* O_CLOEXEC is always set. */
int gb_disk_call_open(struct gb_disk_plan *plan, int folder, const char *path, int flags);
/* The file is opened for writing, with mode 0600. A link is not followed. */
int gb_disk_call_create(struct gb_disk_plan *plan, int folder, const char *path, int flags);
int gb_disk_call_mkdir(struct gb_disk_plan *plan, int folder, const char *path); /* mode 0700 */
/* Past the kernel's cache from now on, or through it; the latter asks no rule. */
int gb_disk_call_direct(struct gb_disk_plan *plan, int fd, bool direct);
int gb_disk_call_fallocate(struct gb_disk_plan *plan, int fd, uint64_t bytes);
ssize_t gb_disk_call_write(struct gb_disk_plan *plan, int fd, const void *ptr, size_t n, uint64_t at);
ssize_t gb_disk_call_read(struct gb_disk_plan *plan, int fd, void *ptr, size_t n, uint64_t at);
int gb_disk_call_truncate(struct gb_disk_plan *plan, int fd, uint64_t bytes);
int gb_disk_call_sync(struct gb_disk_plan *plan, int fd);
int gb_disk_call_dirsync(struct gb_disk_plan *plan, int fd);
int gb_disk_call_rename(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path);
int gb_disk_call_link(struct gb_disk_plan *plan, int from, const char *path, int to, const char *to_path);
int gb_disk_call_unlink(struct gb_disk_plan *plan, int folder, const char *path);
int gb_disk_call_rmdir(struct gb_disk_plan *plan, int folder, const char *path);
int gb_disk_call_statvfs(struct gb_disk_plan *plan, const char *path, struct statvfs *ret);
void gb_disk_call_point(struct gb_disk_plan *plan, enum gb_disk_op op);

#endif
