#include "http/mhd/suspend.h"

static void list(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->listed)
        return;
    ex->listed = true;
    ex->prev = NULL;
    ex->next = loop->waiting;
    if (ex->next)
        ex->next->prev = ex;
    loop->waiting = ex;
}

void gb_mhd_unlist(struct gb_loop *loop, struct gb_exchange *ex) {
    if (!ex->listed)
        return;
    ex->listed = false;
    if (ex->prev)
        ex->prev->next = ex->next;
    else
        loop->waiting = ex->next;
    if (ex->next)
        ex->next->prev = ex->prev;
}

void gb_mhd_suspend(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->suspended)
        return;
    ex->suspended = true;
    atomic_fetch_add(&loop->server->suspended, 1);
    list(loop, ex);
    MHD_suspend_connection(ex->conn);
}

void gb_mhd_resume(struct gb_loop *loop, struct gb_exchange *ex) {
    gb_mhd_unlist(loop, ex);
    loop->progress++;
    if (!ex->suspended)
        return;
    ex->suspended = false;
    atomic_fetch_sub(&loop->server->suspended, 1);
    MHD_resume_connection(ex->conn);
    loop->resumed = true;
}
