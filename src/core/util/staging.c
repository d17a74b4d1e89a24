/* Pinned host memory: its ceiling, and the slots of staging memory that are lent to transfers. The core opens and
 * closes both; content and transfers take and give back. */
#include "core/util/staging.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "model/model.h"

/* --- pinned ------------------------------------------------------------------------------------------------------- */

#define PAGE_BYTES 4096u

void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes) {
    pinned->slots_bytes = 0;
    pinned->limit_bytes = limit_bytes ? limit_bytes : GB_UNLIMITED;
    atomic_init(&pinned->used_bytes, 0);
}

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t rest = bytes % PAGE_BYTES;

    return rest == 0 || bytes > UINT64_MAX - PAGE_BYTES ? bytes : bytes - rest + PAGE_BYTES;
}

/* The bytes would not fit even if all buffers were deleted. */
static int refuse_for_good(const struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    unsigned long long limit = pinned->limit_bytes;

    if (err)
        err->hopeless = true;
    if (pinned->slots_bytes == 0)
        return gb_error_set(
            err, GB_ERR_PINNED_LIMIT,
            "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), and %llu are "
            "asked for; start it with a larger --max-pinned-bytes",
            limit, (unsigned long long)bytes);
    return gb_error_set(err, GB_ERR_PINNED_LIMIT,
                        "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), its slots hold "
                        "%llu of them (--slots-bytes), and %llu are asked for; start it with a larger "
                        "--max-pinned-bytes or fewer --slots-bytes",
                        limit, (unsigned long long)pinned->slots_bytes, (unsigned long long)bytes);
}

static int refuse(const struct gb_pinned *pinned, uint64_t used, uint64_t bytes, struct gb_error *err) {
    gb_error_numbers(err, pinned->limit_bytes, used, bytes);
    if (bytes > pinned->limit_bytes - pinned->slots_bytes)
        return refuse_for_good(pinned, bytes, err);
    return gb_error_set(
        err, GB_ERR_PINNED_LIMIT,
        "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), %llu are locked, "
        "and %llu more are asked for; delete pinned buffers or release host sides of mirrored ones",
        (unsigned long long)pinned->limit_bytes, (unsigned long long)used, (unsigned long long)bytes);
}

static int check(const struct gb_pinned *pinned, uint64_t used, uint64_t bytes, struct gb_error *err) {
    if (bytes == 0 || (used <= pinned->limit_bytes && bytes <= pinned->limit_bytes - used))
        return 0;
    return refuse(pinned, used, bytes, err);
}

int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    return check(pinned, atomic_load(&pinned->used_bytes), whole_pages(bytes), err);
}

/* Other threads may take at the same time. The number changes only if it still is the one that was checked. */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    uint64_t used = atomic_load(&pinned->used_bytes);
    uint64_t more = whole_pages(bytes);

    do {
        if (check(pinned, used, more, err) < 0)
            return -1;
    } while (!atomic_compare_exchange_weak(&pinned->used_bytes, &used, used + more));
    return 0;
}

int gb_pinned_take_slots(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    if (gb_pinned_take(pinned, bytes, err) < 0)
        return -1;
    pinned->slots_bytes = whole_pages(bytes);
    return 0;
}

void gb_pinned_give_slots(struct gb_pinned *pinned) {
    gb_pinned_give(pinned, pinned->slots_bytes);
    pinned->slots_bytes = 0;
}

void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes) {
    atomic_fetch_sub(&pinned->used_bytes, whole_pages(bytes));
}

/* --- staging slots ------------------------------------------------------------------------------------------------ */

/* The number of free slots that are searched for one that is in the thread's own cache. */
#define LOOK_BACK 16

int gb_slots_init(struct gb_slots *slots, struct gb_backend *backend, uint64_t slots_bytes, uint64_t slot_bytes,
                  struct gb_error *err) {
    void *base = NULL;
    size_t i;

    *slots = (struct gb_slots){.backend = backend, .slot_bytes = slot_bytes};
    if (slot_bytes == 0 || slots_bytes / slot_bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%llu bytes of slots of %llu bytes each are no slot at all",
                            (unsigned long long)slots_bytes, (unsigned long long)slot_bytes);
    slots->total = slots_bytes / slot_bytes;
    slots->free = calloc(slots->total, sizeof(*slots->free));
    slots->users = calloc(slots->total, sizeof(*slots->users));
    if (!slots->free || !slots->users)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (!slots->free || !slots->users || gb_pin_alloc(backend, slots->total * slot_bytes, &base, err) < 0) {
        free(slots->free);
        free(slots->users);
        return -1;
    }
    slots->base = base;
    for (i = 0; i < slots->total; i++)
        slots->free[i] = slots->base + (slots->total - 1 - i) * slot_bytes;
    atomic_init(&slots->free_count, slots->total);
    gb_mutex_init(&slots->lock);
    slots->ready = true;
    return 0;
}

void gb_slots_done(struct gb_slots *slots) {
    if (!slots->ready)
        return;
    gb_pin_free(slots->backend, slots->base);
    free(slots->free);
    free(slots->users);
    pthread_mutex_destroy(&slots->lock);
    slots->ready = false;
}

/* The address of this variable stands for the thread. */
static _Thread_local char me;

static const char **user_of(const struct gb_slots *slots, const void *slot) {
    return &slots->users[(size_t)((const char *)slot - slots->base) / slots->slot_bytes];
}

/* Takes the slot that this thread gave back last, if it is among the last LOOK_BACK; else the last one. */
static void *pop_locked(struct gb_slots *slots) {
    size_t count = atomic_load(&slots->free_count);
    size_t least = count > LOOK_BACK ? count - LOOK_BACK : 0;
    void *slot;
    size_t i;

    if (count == 0)
        return NULL;
    for (i = count; i > least && *user_of(slots, slots->free[i - 1]) != &me; i--)
        ;
    if (i == least)
        i = count;
    slot = slots->free[i - 1];
    memmove(&slots->free[i - 1], &slots->free[i], (count - i) * sizeof(slots->free[0]));
    atomic_store(&slots->free_count, count - 1);
    *user_of(slots, slot) = &me;
    return slot;
}

void *gb_slots_try(struct gb_slots *slots) {
    void *slot;

    pthread_mutex_lock(&slots->lock);
    slot = pop_locked(slots);
    pthread_mutex_unlock(&slots->lock);
    return slot;
}

void *gb_slots_take(struct gb_slots *slots, struct gb_slot_waiter *waiter) {
    void *slot;

    pthread_mutex_lock(&slots->lock);
    slot = waiter->slot;
    waiter->slot = NULL;
    if (!slot && !waiter->waiting) {
        slot = pop_locked(slots);
        if (!slot) {
            waiter->waiting = true;
            waiter->next = NULL;
            if (slots->last)
                slots->last->next = waiter;
            else
                slots->first = waiter;
            slots->last = waiter;
            atomic_fetch_add(&slots->waits, 1);
            atomic_fetch_add(&slots->wanted, 1);
        }
    }
    pthread_mutex_unlock(&slots->lock);
    return slot;
}

void gb_slots_give(struct gb_slots *slots, void *slot) {
    struct gb_slot_waiter *waiter;

    pthread_mutex_lock(&slots->lock);
    waiter = slots->first;
    if (waiter) {
        slots->first = waiter->next;
        if (!slots->first)
            slots->last = NULL;
        waiter->waiting = false;
        atomic_fetch_sub(&slots->wanted, 1);
        waiter->slot = slot;
    } else {
        size_t count = atomic_load(&slots->free_count);

        slots->free[count] = slot;
        atomic_store(&slots->free_count, count + 1);
    }
    pthread_mutex_unlock(&slots->lock);
    if (waiter)
        waiter->granted(waiter);
}

bool gb_slots_plenty(struct gb_slots *slots) {
    return atomic_load(&slots->free_count) * 2 >= slots->total;
}

bool gb_slots_wanted(struct gb_slots *slots) {
    bool wanted;

    pthread_mutex_lock(&slots->lock);
    wanted = slots->first != NULL;
    pthread_mutex_unlock(&slots->lock);
    return wanted;
}

bool gb_slots_cancel(struct gb_slots *slots, struct gb_slot_waiter *waiter) {
    struct gb_slot_waiter **at;
    struct gb_slot_waiter *before = NULL;
    bool waited = false;
    void *slot;

    pthread_mutex_lock(&slots->lock);
    slot = waiter->slot;
    waiter->slot = NULL;
    if (waiter->waiting) {
        for (at = &slots->first; *at != waiter; at = &(*at)->next)
            before = *at;
        *at = waiter->next;
        if (slots->last == waiter)
            slots->last = before;
        waiter->waiting = false;
        atomic_fetch_sub(&slots->wanted, 1);
        waited = true;
    }
    pthread_mutex_unlock(&slots->lock);
    if (slot)
        gb_slots_give(slots, slot);
    return waited;
}
