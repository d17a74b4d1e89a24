/* A restore under way, for the files that make it up: restore.c plans it and ends it, bring.c has one buffer. */
#ifndef GB_CORE_CHECKPOINT_RESTORE_H
#define GB_CORE_CHECKPOINT_RESTORE_H

#include "base/container.h"
#include "core/buffer/transaction.h"
#include "core/checkpoint/checkpoint.h"
#include "core/stored/load.h"

struct gb_restore;

struct gb_restore_item {
    struct gb_transaction transaction;
    struct gb_restore *restore;
    struct gb_task task;
    size_t index; /* of the entry */
    bool counted; /* in the session's quota of buffers */
    bool replaced;
    bool over; /* its load, or it was skipped */
    bool loaded;
    struct gb_content *gone;
};

struct gb_restore {
    struct gb_task task;
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    struct gb_restore_params params;
    struct gb_name *names; /* its own */
    struct gb_restore_call *call;
    struct gb_checkpoint_view view;
    struct gb_manifest manifest;
    struct gb_restore_item *items;
    size_t count;
    size_t next;    /* to be loaded */
    uint64_t sweep; /* the loads' number */
    struct gb_load_waiter waiter;
    struct gb_transaction_group group;
};

/* Sets the functions of the item's transaction. */
void gb_restore_item_init(struct gb_restore_item *item);

#endif
