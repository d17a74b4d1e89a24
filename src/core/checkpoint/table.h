/* The table of checkpoints, for the files that make it up: table.c has what there is, remove.c what goes. */
#ifndef GB_CORE_CHECKPOINT_TABLE_H
#define GB_CORE_CHECKPOINT_TABLE_H

#include "base/map.h"
#include "core/checkpoint/checkpoint.h"

struct gb_checkpoints {
    pthread_mutex_t lock;
    bool known;                 /* the folders were read */
    struct gb_map by_name;      /* struct gb_checkpoint */
    struct gb_idlist by_number; /* see place_locked */
    uint64_t swept_ns;          /* the housekeeper's alone */
};

/* One that shows. NULL with CHECKPOINT_NOT_FOUND, or with STORAGE_UNAVAILABLE if what is there is not known yet. */
struct gb_checkpoint *gb_checkpoints_find_locked(struct gb_checkpoints *table, const struct gb_name *name,
                                                 struct gb_error *err);

#endif
