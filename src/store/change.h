/* A change on its way to the database. Internal to the store. */
#ifndef GB_STORE_CHANGE_H
#define GB_STORE_CHANGE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/writer.h"

struct gb_change {
    struct gb_change *next;
    enum gb_change_kind kind;
    gb_store_done_fn *done;
    void *arg;
    uint64_t queued_ns;
    struct gb_store_mark *mark; /* behind the record; NULL: none */
    bool durable;               /* is to survive a loss of power */
    alignas(max_align_t) unsigned char record[];
};

/* Copies record[0..bytes), with a reference to its labels, and the mark. NULL when memory is exhausted. */
struct gb_change *gb_change_new(enum gb_change_kind kind, const void *record, size_t bytes,
                                const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg);

/* NULL is accepted. */
void gb_change_free(struct gb_change *change);

/* From now on it writes nothing and is refused at its turn. */
void gb_change_refuse(struct gb_change *change);

/* Whether it writes to the database. */
bool gb_change_writes(const struct gb_change *change);
/* Whether no HTTP loop should carry it out: it may write many rows, or wait for the disk. Every change that can be
 * durable is long. */
bool gb_change_is_long(const struct gb_change *change);

#endif
