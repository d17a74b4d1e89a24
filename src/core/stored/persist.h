/* Writing a buffer's bytes to disk, as a transaction asks for it. Above the transaction lies what reads the memory, so
 * the core has a function for it: core->persist. */
#ifndef GB_CORE_STORED_PERSIST_H
#define GB_CORE_STORED_PERSIST_H

#include "core/stored/stored.h"
#include "core/stored/tee.h"

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

#endif
