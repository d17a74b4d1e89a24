/* Bytes of a generation on disk or in the host tier: held, written for a transaction, read in blocks, loaded; and the
 * disk and the host tier as the core knows them. */
#ifndef GB_CORE_DURABLE_STORED_H
#define GB_CORE_DURABLE_STORED_H

#include <sys/queue.h>

#include "core/public/durable.h"
#include "core/runtime/runtime.h"
#include "disk/disk.h"

/* --- disk: its threads, and the tee of a durable upload ----------------------------------------------------------- */

/* The threads that wait for the disk: --disk-threads of them, which begin with the first work. None holds a lock across
 * a call of the disk. */

#define GB_DISK_THREADS 4

struct gb_disks;

/* NULL when memory is exhausted. threads 0: GB_DISK_THREADS. */
struct gb_disks *gb_disks_new(unsigned threads);
void gb_disks_free(struct gb_disks *disks); /* runs the queued tasks; NULL is accepted */

/* Queues the task on the next thread in turn. After gb_disks_start. [any thread, never blocks] */
void gb_disks_post(struct gb_core *core, struct gb_task *task);

/* One of the threads, in turn, for tasks that are to run one after the other. After gb_disks_start. */
struct gb_lane *gb_disks_lane(struct gb_core *core);

/* Makes the threads, unless they are there. Returns 0, or -1 with INTERNAL, or STORAGE_UNAVAILABLE without a data
 * folder. */
int gb_disks_start(struct gb_core *core, struct gb_error *err);

/* Refuses a durability that the daemon cannot give: UNSUPPORTED. [now, without the disk] */
int gb_disks_check_durability(const struct gb_core *core, enum gb_durability durability, struct gb_error *err);

/* Refuses `bytes` bytes of that durability if the disk has no room for them, or takes none at present: STORAGE_FULL,
 * STORAGE_UNAVAILABLE, STORAGE_FAILED. No lock is held. */
int gb_disks_check_room(struct gb_core *core, enum gb_durability durability, uint64_t bytes, struct gb_error *err);

/* A point of the core's at which a rule of --disk-fault may hold up or kill the process. */
void gb_disks_point(const struct gb_core *core, enum gb_disk_op op);

/* A file that is written while its bytes come: each piece of an upload goes to the device and, by a tee, to the disk.
 *
 * Several threads of the disk write: the checksums of one piece are computed while another is written. The file has a
 * name of its own until the commit, which knows the generation. */

struct gb_tee;

/* A piece of the bytes. The owner embeds it and keeps the memory until done. Pieces that gb_disk_is_piece refuses
 * come in their order. */
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

/* Frees the tee and removes a file that was not taken. No piece is queued. NULL is accepted. [any thread, never
 * blocks] */
void gb_tee_free(struct gb_tee *tee);

/* Host memory for bytes that have left a device: page-locked blocks, so that a copy from or to the device goes at the
 * speed of the bus. All together take --spill-host-bytes at most. A block that is given back is kept for a next one of
 * its size, because page-locking is slower than the copy; it ends when others need its room. */

struct gb_host_tier;

/* A block, counted by references: the stored bytes' and each reader's. */
struct gb_host_block {
    atomic_uint refs;
    struct gb_core *core;
    struct gb_task task;        /* gives it back */
    struct gb_host_block *next; /* kept */
    int device;                 /* index, of the device that it was page-locked by way of */
    void *ptr;
    uint64_t bytes;
    uint64_t size; /* of the memory: whole pages */
};

/* NULL when memory is exhausted. limit_bytes 0: no block is given. */
struct gb_host_tier *gb_host_tier_new(uint64_t limit_bytes);
/* Frees the kept blocks. No block is in use; NULL is accepted. */
void gb_host_tier_free(struct gb_core *core);

/* Returns true if that many bytes have room now. [any thread, never blocks] */
bool gb_host_tier_has_room(const struct gb_core *core, uint64_t bytes);

/* Page-locks memory, unless a block of that size is kept. [blocks] Returns 0 with one reference, or -1 with
 * INVALID_ARGUMENT (there is no such memory), STORAGE_FULL (with numbers), PINNED_LIMIT or the device's refusal. */
int gb_host_block_new(struct gb_core *core, int device, uint64_t bytes, struct gb_host_block **ret,
                      struct gb_error *err);
struct gb_host_block *gb_host_block_ref(struct gb_host_block *block); /* NULL is accepted */
/* NULL is accepted. A thread of the disk gives the memory back. [any thread, never blocks] */
void gb_host_block_unref(struct gb_host_block *block);

struct gb_host_tier_stat {
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t kept_bytes; /* of blocks that hold nothing now */
    uint64_t blocks;     /* in use */
};
void gb_host_tier_stat(struct gb_core *core, struct gb_host_tier_stat *ret);

/* The bytes of one generation on disk, counted by references: the buffer's and each reader's. When no row of the
 * database names them any more and the last reader has gone, their file is removed. */

struct gb_stored {
    atomic_uint refs;
    atomic_bool condemned;
    struct gb_core *core;
    struct gb_stored_rec rec; /* its blocks are behind this */
    struct gb_disk_name name; /* of the file, unless gb_stored_inline */
    bool spilled;             /* it ends with the process, and no row names it */
    bool in_host;             /* spilled, and there is no file: the block has the bytes, without checksums */
    /* In host memory, too, from where loads and downloads take them; a reference. NULL: not there. Constant if in_host,
     * else guarded by the lock of the buffer's session. */
    struct gb_host_block *block;
    atomic_bool damaged;      /* was found so: it does not count as having the bytes that memory has */
    atomic_bool set_aside;    /* condemned, its file goes to DIR/damaged */
    bool found;               /* at the start of the process: the bytes are there */
    _Atomic uint64_t file;    /* the number of a file that has several names; 0: it has not, or none has looked */
    _Atomic uint64_t read_ns; /* when a download last began to read them */
    struct gb_task task;      /* removes the file */
    uint32_t blocks[];
};

/* Copies rec with its blocks. Returns it with one reference, or NULL when memory is exhausted. */
struct gb_stored *gb_stored_new(struct gb_core *core, const struct gb_stored_rec *rec);
/* As above, for bytes that are only in a block; takes over its reference. rec has no blocks. */
struct gb_stored *gb_stored_new_in_host(struct gb_core *core, const struct gb_stored_rec *rec,
                                        struct gb_host_block *block);
struct gb_stored *gb_stored_ref(struct gb_stored *stored);
/* NULL is accepted. [any thread, never blocks] */
void gb_stored_unref(struct gb_stored *stored);
/* No row names the bytes any more, or none was written. NULL is accepted. [any thread, never blocks] */
void gb_stored_condemn(struct gb_stored *stored);

/* There is a file. */
static inline bool gb_stored_has_file(const struct gb_stored *stored) {
    return !stored->in_host && !gb_stored_inline(&stored->rec);
}

/* Looks whether the file has several names. A call of the disk. */
uint64_t gb_stored_look_file(struct gb_stored *stored);

/* The bytes were found damaged or missing, or were found whole. Counted once, until the other is the case. [any thread,
 * never blocks] */
void gb_stored_note_damage(struct gb_stored *stored);
void gb_stored_note_whole(struct gb_stored *stored);

/* The checksum of block `index` is that of the n bytes at ptr: 0, or -1 with CONTENT_DAMAGED, which is noted. */
int gb_stored_check_block(struct gb_stored *stored, size_t index, uint32_t crc32c, struct gb_error *err);

/* Writing a buffer's bytes to disk, as a transaction asks for it. Above the transaction lies what reads the memory, so
 * the core has a function for it: core->persist. */

struct gb_content;
struct gb_session;

struct gb_persist {
    struct gb_session *session;      /* borrowed until done, as rec */
    struct gb_content *content;      /* a reference, which is given back; NULL: the bytes are zeros */
    const struct gb_buffer_rec *rec; /* the record that they are of: id, generation and run are set */
    struct gb_host_block *block;     /* the bytes are there instead; a reference, which is given back. NULL: no */
    struct gb_tee *tee;              /* has written the bytes; borrowed. NULL: they are read from the content */
    enum gb_spill spills;            /* the bytes need not outlive the process: they are not synced. NEVER: they do */
    bool strictly;                   /* to host memory, or not at all; else the disk takes what has no room there */
    struct gb_stored *stored;        /* the result, with a reference; NULL after an error */
    void *data;                      /* the bytes, if they go to the database: given, or a result. Freed with
                                      * gb_persist_done */
    struct gb_error error;
    void (*done)(struct gb_persist *persist); /* once, on any thread, without locks */
    void *job;                                /* the writer's own */
};

/* The bytes are on disk when done runs, or the error is set and nothing is left behind. */
typedef void gb_persist_fn(struct gb_core *core, struct gb_persist *persist);

/* Gives back what the result has. written: the database names the stored bytes. unknown: it may. */
void gb_persist_done(struct gb_persist *persist, bool written, bool unknown);

/* Bytes of a file into memory, by several threads of the disk: checksums of one chunk are computed while another is
 * read. Embedded by its owner, which uses it from one thread of the disk at a time. */

#define GB_BLOCK_READER_THREADS 4

struct gb_block_reader {
    struct gb_core *core;
    struct gb_stored *stored;    /* borrowed, as file */
    struct gb_disk_reader *file; /* whose descriptor the threads share */
    const struct gb_lane *lane;  /* of the owner's thread */
    void (*done)(void *arg);     /* on a thread of the disk, under the lock below: what was begun has ended */
    void *arg;

    struct gb_block_reader_worker {
        struct gb_task task;
        struct gb_block_reader *owner;
        struct gb_disk_reader *reader; /* its own; NULL: not made yet */
    } workers[GB_BLOCK_READER_THREADS];
    char *ptr;
    size_t n;
    uint64_t at;
    size_t chunk;
    pthread_mutex_t lock; /* for all below */
    size_t next;          /* of the n bytes: where the next chunk begins */
    unsigned running;
    struct gb_error error; /* of the first chunk that failed: no other begins */
};

/* Nothing is read yet. The file and the stored bytes must live until gb_block_reader_close. */
void gb_block_reader_init(struct gb_block_reader *r, struct gb_core *core, struct gb_stored *stored,
                          struct gb_disk_reader *file, const struct gb_lane *lane, void (*done)(void *arg), void *arg);
/* No read is running. A zeroed reader is accepted. */
void gb_block_reader_close(struct gb_block_reader *r);

/* Whether they are blocks of a file: they begin with one of GB_STORED_BLOCK_BYTES, and end with one or with the bytes.
 * Others cannot be read so. */
bool gb_block_reader_may(const struct gb_stored *stored, uint64_t at, size_t n);
/* Reads n bytes from `at` and compares the checksums of their blocks. This thread reads as well, until nothing is left
 * for it. done comes unless it was the last to end. */
void gb_block_reader_begin(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at);
/* As above, by other threads only; done is called. */
void gb_block_reader_post(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at);
/* 1: the bytes are there; 0: some thread reads still, and done comes; -1: as gb_disk_read, or CONTENT_DAMAGED. err may
 * be NULL. */
int gb_block_reader_result(struct gb_block_reader *r, struct gb_error *err);

/* --- loads -------------------------------------------------------------------------------------------------------- */

/* Bytes that are on disk alone come into memory because a request wants them. The request is refused with
 * NOT_LOADED, waits for the end of a load (gb_loads_wait) and is made again. */

/* One load of a buffer, shared by the buffer and the thread that carries it out. Guarded by the session's lock. */
struct gb_load {
    unsigned refs;
    unsigned waiting; /* requests that are to learn of a failure */
    bool failed;
    uint64_t failed_ns; /* an error is kept for a second */
    struct gb_error error;
};

void gb_load_unref_locked(struct gb_load *load); /* NULL is accepted */

TAILQ_HEAD(gb_load_waiters, gb_load_waiter);

struct gb_loads {
    pthread_mutex_t lock; /* for the list; held while a waker runs */
    struct gb_load_waiters waiters;
    _Atomic uint64_t ended; /* loads, whatever became of them */
    _Atomic uint64_t loaded;
    _Atomic uint64_t loaded_bytes;
    _Atomic uint64_t failed;
    _Atomic uint64_t evicted;
    _Atomic uint64_t evicted_to_host;  /* of them, those that host memory has */
    _Atomic uint64_t loaded_from_host; /* of those that were loaded */
    _Atomic uint64_t evicted_for_room; /* of them, because others wanted the memory */
    _Atomic uint64_t reloaded;         /* loaded within a minute of leaving memory */
    _Atomic uint64_t sweeps;           /* loads of many, which have these numbers */
    _Atomic uint64_t cold_reads;       /* downloads from the disk itself */
};

struct gb_loads *gb_loads_new(void); /* NULL when memory is exhausted */
void gb_loads_free(struct gb_loads *loads);

/* A load has ended: wakes all that wait. No lock is held. */
void gb_loads_ended(struct gb_core *core);

#endif
