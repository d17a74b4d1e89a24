/* The disk as the core knows it: its threads, and the tee of a durable upload. */
#ifndef GB_CORE_DURABLE_DISKS_H
#define GB_CORE_DURABLE_DISKS_H

#include "core/runtime/runtime.h"
#include "disk/disk.h"

/* The threads that wait for the disk: --disk-threads of them, which begin with the first work. None holds a lock across
 * a call of the disk. */

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

/* A file that is written while its bytes come: each piece of an upload goes to the device and, by a tee, to the disk.
 *
 * Several threads of the disk write: the checksums of one piece are computed while another is written. The file has a
 * name of its own until the commit, which knows the generation. */

struct gb_tee;

/* A piece of the bytes. The owner embeds it and keeps the memory until done. Pieces that are none of
 * gb_disk_is_piece come in their order. */
struct gb_tee_piece {
    const void *ptr;
    size_t n;
    uint64_t at; /* of the bytes */
    /* On a thread of the disk, without locks; others may be done before. error NULL: it is written. */
    void (*done)(struct gb_tee_piece *piece, const struct gb_error *error);
    struct gb_tee_piece *next;
};

/* Touches no disk. NULL if memory or threads are exhausted: then there is no tee. */
struct gb_tee *gb_tee_new(struct gb_core *core, int64_t buffer_id, uint64_t bytes);

/* Queues the piece. [any thread, never blocks] */
void gb_tee_write(struct gb_tee *tee, struct gb_tee_piece *piece);

int64_t gb_tee_buffer_id(const struct gb_tee *tee);

/* All pieces are done. Returns the file, which is the caller's and still to be named, or NULL if it has not all the
 * bytes. */
struct gb_disk_writer *gb_tee_take(struct gb_tee *tee);

/* No piece is queued. Gives up a file that was not taken. NULL is accepted. [any thread, never blocks] */
void gb_tee_free(struct gb_tee *tee);

#endif
