/* The threads that wait for the disk: --disk-threads of them, which begin with the first work. None holds a lock across
 * a call of the disk. */
#ifndef GB_CORE_STORED_DISKS_H
#define GB_CORE_STORED_DISKS_H

#include "core/runtime/runtime.h"
#include "disk/disk.h"

#define GB_DISK_THREADS 4
#define GB_DISK_THREADS_MAX 64

struct gb_disks;

/* NULL when memory is exhausted. threads 0: GB_DISK_THREADS. */
struct gb_disks *gb_disks_new(unsigned threads);
void gb_disks_free(struct gb_disks *disks); /* runs what is queued; NULL is accepted */

/* Queues the task on the next thread in turn. After gb_disks_start. [any thread, never blocks] */
void gb_disks_post(struct gb_core *core, struct gb_task *task);
/* The same on another thread than this lane's, if there is one. */
void gb_disks_post_beside(struct gb_core *core, const struct gb_lane *lane, struct gb_task *task);

/* How many there are. */
unsigned gb_disks_count(const struct gb_core *core);

/* One of the threads, in turn, for tasks that are to run one after the other. After gb_disks_start. */
struct gb_lane *gb_disks_lane(struct gb_core *core);

/* Makes the threads, unless they are there. Returns 0, or -1 with INTERNAL, or STORAGE_UNAVAILABLE without a data
 * folder. */
int gb_disks_start(struct gb_core *core, struct gb_error *err);

/* Refuses a durability that the daemon cannot give: UNSUPPORTED. [now, without the disk] */
int gb_disks_check_durability(const struct gb_core *core, enum gb_durability durability, struct gb_error *err);

/* Refuses so many bytes of that durability if the disk has no room for them, or takes none at present: STORAGE_FULL,
 * STORAGE_UNAVAILABLE, STORAGE_FAILED. No lock is held. */
int gb_disks_check_room(struct gb_core *core, enum gb_durability durability, uint64_t bytes, struct gb_error *err);

/* A point of the core's at which a rule of --disk-fault may hold up or kill the process. */
void gb_disks_point(const struct gb_core *core, enum gb_disk_op op);

#endif
